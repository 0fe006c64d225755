"""How a call is declared: a frozen dataclass whose fields are its parameters, each with its check, default and words.

The declaration is the one source of the SQL macro, the Python function, the shell's completion and the reference page
(`dpsql.calls.render`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dpsql.calls import arguments
from dpsql.errors import ArgumentError, shown

Check = Callable[[Mapping[str, Any], str], Any]
REQUIRED: Any = object()
"""Stands for the default of a parameter that has none."""
FREE = "free"
CHARGED = "charged once per release"
NOT_PRIVATE = "NOT PRIVATE, for the custodian only"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a call.

    Parameters
    ----------
    name : str
    default : object
        `REQUIRED` where there is none.
    python : str
        Annotation of the Python function's argument.
    words : str
        What it means, with range and unit.
    choices : tuple of str
        The texts that it takes, where those are listed.
    also : str or None
        Another name in SQL, where `name` is a reserved word that needs quotes.
    needed : bool
        Whether the Python function has no default, although SQL's macro has.
    plain : bool
        Whether dates, arrays and paths of Python are made the JSON values that SQL sends.
    """

    name: str
    default: Any
    python: str
    words: str
    choices: tuple[str, ...] = ()
    also: str | None = None
    needed: bool = False
    plain: bool = False

    @property
    def required(self) -> bool:
        """Whether every call names it."""
        return self.default is REQUIRED


def argument(
    check: Check,
    words: str,
    *,
    default: Any = None,
    python: str,
    choices: tuple[str, ...] = (),
    also: str | None = None,
    needed: bool = False,
    plain: bool = False,
    null: bool = True,
) -> Any:
    """Return the field of a call. ``check``: of its value; ``null``: whether NULL stands for the default; others: `Parameter`."""
    about = {
        "check": check, "words": words, "python": python, "choices": choices, "also": also, "needed": needed, "plain": plain,
        "null": null,
    }
    if default is REQUIRED:
        return dataclasses.field(metadata=about)
    return dataclasses.field(default=default, metadata=about)


@dataclass(frozen=True)
class Call:
    """A call with its arguments, each checked by itself. What depends on the database is checked where that is known.

    Raises
    ------
    ArgumentError
        An argument is missing, of the wrong type or out of range.
    """

    name: ClassVar[str]
    """Of the macro, without dp_."""
    function: ClassVar[str]
    """Of the Python function."""
    privacy: ClassVar[str]
    gives: ClassVar[str]
    """What the answer holds."""
    parametrized: ClassVar[str | None] = None
    """The argument whose parameters (``?``, ``$name``) the Python function fills in from ``params``."""

    def __post_init__(self) -> None:
        """Check every argument."""
        for field in dataclasses.fields(self):
            stated = getattr(self, field.name)
            if stated is None and field.metadata["null"] and field.default is not dataclasses.MISSING:
                stated = field.default
            object.__setattr__(self, field.name, field.metadata["check"]({field.name: stated}, field.name))

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return the parameters in order."""
        parameters = []
        for field in dataclasses.fields(cls):
            about = {name: value for name, value in field.metadata.items() if name not in ("check", "null")}
            default = REQUIRED if field.default is dataclasses.MISSING else field.default
            parameters.append(Parameter(field.name, default, **about))
        return tuple(parameters)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the call that a mapping of arguments makes.

        Raises
        ------
        ArgumentError
            One of them is wrong, or of no such name.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        given = cls._under_one_name(given)
        for name, value in given.items():
            if name not in known:
                raise ArgumentError(name, value, f"dp_{cls.name} has no such argument; it has {', '.join(sorted(known))}")
        left_out = {p.name: None for p in cls.parameters() if p.required and p.name not in given}
        return cls(**left_out, **given)

    @classmethod
    def _under_one_name(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with those that have two names in SQL under one; refuse two that differ."""
        by_name = dict(given)
        for parameter in cls.parameters():
            second = None if parameter.also is None else by_name.pop(parameter.also, None)
            if second is None:
                continue
            stated = by_name.get(parameter.name)
            if stated is not None and stated != second:
                told = f'"{parameter.name}" is the same argument and says {shown(stated)}; leave one out'
                raise ArgumentError(str(parameter.also), second, told)
            by_name[parameter.name] = second
        return by_name

    def changed(self, **values: Any) -> Self:
        """Return the call with some arguments changed, which are checked again."""
        return dataclasses.replace(self, **values)

    def stated(self) -> dict[str, Any]:
        """Return the arguments that are not left out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def optional(check: Check) -> Check:
    """Return a check that lets None stand for what is left out."""

    def checked(given: Mapping[str, Any], name: str) -> Any:
        return None if given.get(name) is None else check(given, name)

    return checked


def anything(given: Mapping[str, Any], name: str) -> Any:
    """Return an argument as it is: what it may be depends on a column."""
    return given.get(name)


def one_of(*allowed: str) -> Check:
    """Return a check for a text of a list."""
    return lambda given, name: arguments.choice(given, name, allowed)


def whole(low: int, high: int) -> Check:
    """Return a check for an integer in [low, high]."""
    return lambda given, name: arguments.integer(given, name, low, high)


def some_epsilon(given: Mapping[str, Any], name: str) -> float | None:
    """Return an epsilon, None where it is left out: a stored release is asked for again without one."""
    return None if given.get(name) is None else arguments.epsilon(given)


def some_delta(given: Mapping[str, Any], name: str) -> float | None:
    """Return a delta, None where it is left out."""
    return arguments.delta(given)


def some_columns(given: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return a list of names, None where it is left out."""
    names = arguments.names(given, name)
    return None if names is None else tuple(names)


def some_options(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a struct of options; empty where it is left out."""
    return arguments.options(given)


def flag(given: Mapping[str, Any], name: str) -> bool:
    """Return true or false; false where it is left out."""
    return arguments.boolean(given, name) or False


def some_discovery(given: Mapping[str, Any], name: str) -> bool | str:
    """Return true, false or 'values'."""
    value = given.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if value != "values":
        raise ArgumentError(name, value, "must be true, false or 'values'")
    return "values"
