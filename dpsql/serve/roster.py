"""The file of analysts as a file: TOML that a person can read, written whole and for its owner alone, by one process at a time.

Privacy: None: no data in here, and no token: salted SHA-256 of 256 random bits, and the SHA1(SHA1(token)) that MySQL's native
password needs.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import fcntl
import json
import math
import os
import re
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpsql.errors import ArgumentError
from dpsql.text.names import fold

FILE = "analysts.toml"
MOST = 10.0
"""The largest epsilon of one question: ten times that, which a call may have, is no protection any more."""
HEAD = (
    "# Who may ask a served database, and what: `dpsql analyst add|grant|list|revoke`, `dpsql publish`. Hashes of tokens, never a\n"
    "# token. It may be changed by hand, too, while the database is served; comments go when dpsql writes it again.\n"
)
State = tuple[int, int, int, int, int, int]
"""By what one sees that a file has changed: time, size, which file it is, and whose."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEPT = ("number", "salt", "hash", "native", "created", "expires", "revoked", "grants")
_SECRET = {"salt": re.compile("[0-9a-f]{32}"), "hash": re.compile("[0-9a-f]{64}"), "native": re.compile("[0-9a-f]{40}")}
_LONGEST = 1 << 22
_OTHERS = 0o077


@dataclass(frozen=True)
class Analyst:
    """One analyst.

    Parameters
    ----------
    name : str
        See `is_name`.
    number : int
        New with every token, so that a session knows whether it is still that of the token it came in with.
    salt, hash, native : str
        Hexadecimal: of SHA-256 of salt and token, and of SHA1(SHA1(token)); all empty once the token is revoked.
    created, expires, revoked : datetime
        UTC; None for what has not happened, or never will.
    grants : mapping
        Protected table, as the books spell it ('main.visits'), to the epsilon of one question.
    """

    name: str
    number: int
    salt: str = field(repr=False)
    hash: str = field(repr=False)
    native: str = field(repr=False)
    created: dt.datetime
    expires: dt.datetime | None = None
    revoked: dt.datetime | None = None
    grants: Mapping[str, float] = field(default_factory=dict)

    def state(self, now: dt.datetime) -> str:
        """Return 'valid', 'expired' or 'revoked'."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else "valid"


@dataclass
class Roster:
    """What a file of analysts says: each of them by name, and the unprotected tables and views that all of them see."""

    analysts: dict[str, Analyst] = field(default_factory=dict)
    public: set[str] = field(default_factory=set)


class _Broken(Exception):
    """What is wrong with a file, without a hash of it."""


def is_name(name: str) -> bool:
    """Return whether a text can be the name of an analyst: letters, digits, '_', '-' and '.', at most 63, a letter or digit first.

    Examples
    --------
    >>> is_name("alice.b-2"), is_name("alice b"), is_name("-x"), is_name("zoë")
    (True, False, False, False)
    """
    return _NAME.fullmatch(name) is not None


def read(path: Path) -> tuple[Roster, State]:
    """Return what a file says, and its state when it was read.

    Raises
    ------
    ArgumentError
        It is not there, is no such file, or others than its owner may read or write it.
    """
    try:
        with path.open("rb") as handle:
            about = os.fstat(handle.fileno())
            text = handle.read(_LONGEST + 1)
    except OSError as error:
        told = f"cannot be read ({error.strerror}); dpsql analyst add NAME DATABASE makes one"
        raise ArgumentError("analysts", str(path), told) from None
    if about.st_mode & _OTHERS or about.st_uid not in (0, os.geteuid()):
        told = "others than you may read or write it, and who writes it comes in; chmod 600, and be its owner"
        raise ArgumentError("analysts", str(path), told)
    try:
        return _parsed(text), state_of(about)
    except _Broken as error:
        told = f"is no file of analysts ({error}), so nobody can come in; mend it, or take it away and add the analysts again"
        raise ArgumentError("analysts", str(path), told) from None


def state_of(about: os.stat_result) -> State:
    """Return by what one sees that a file has changed."""
    return about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino, about.st_mode, about.st_uid


@contextmanager
def changing(path: Path, *, new: bool) -> Iterator[Roster]:
    """Give what a file says to be changed, and write it back if nothing fails; one process, and one thread, at a time.

    Parameters
    ----------
    new : bool
        Whether the file may be a new one.

    Raises
    ------
    ArgumentError
        It cannot be read or written.
    """
    path = path.resolve()  # a link stays one
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ArgumentError("analysts", str(path), f"cannot be written ({error.strerror}); name another file") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        roster = Roster() if new and not path.exists() else read(path)[0]
        yield roster
        _write(path, roster)
    finally:
        os.close(lock)


def _write(path: Path, roster: Roster) -> None:
    """Write the file whole: to a draft for its owner alone, which then takes its place."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as handle:
            handle.write(_printed(roster).encode())
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise ArgumentError("analysts", str(path), f"cannot be written ({error.strerror}); name another file") from None


def _printed(roster: Roster) -> str:
    """Return the text of a file."""
    lines = [HEAD, f"public = [{', '.join(_text(name) for name in sorted(roster.public))}]\n"]
    for name in sorted(roster.analysts):
        analyst = roster.analysts[name]
        lines.append(f"\n[analyst.{_key(name)}]\n")
        for key in _KEPT[:-1]:
            value = getattr(analyst, key)
            if value is not None and value != "":
                shown = value if isinstance(value, int) else _text(value) if isinstance(value, str) else _moment(value)
                lines.append(f"{key} = {shown}\n")
        if analyst.grants:
            lines.append(f"[analyst.{_key(name)}.grants]\n")
            lines += [f"{_key(table)} = {float(epsilon)!r}\n" for table, epsilon in sorted(analyst.grants.items())]
    return "".join(lines)


def _parsed(text: bytes) -> Roster:
    """Return what the text of a file says; raise `_Broken` where it is none."""
    if len(text) > _LONGEST:
        raise _Broken("it is too long")
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _Broken("it is not TOML in UTF-8") from None
    if rest := set(document) - {"public", "analyst"}:
        raise _Broken(f"{min(rest)} means nothing")
    public, listed = document.get("public", []), document.get("analyst", {})
    if not isinstance(public, list) or not all(isinstance(name, str) for name in public) or not isinstance(listed, dict):
        raise _Broken("public is a list of names, and analyst a table")
    analysts = {name: _analyst(name, about) for name, about in listed.items()}
    if len({fold(name) for name in analysts}) < len(analysts):
        raise _Broken("two names differ in the case of letters alone")
    return Roster(analysts, set(public))


def _analyst(name: str, entry: Any) -> Analyst:
    """Return one entry of a file."""
    if not is_name(name) or not isinstance(entry, dict):
        raise _Broken("an analyst has a name that none can have, or is no table")
    if rest := set(entry) - set(_KEPT):  # 'expire' would let in for ever
        raise _Broken(f"{name}: {min(rest)} means nothing")
    number, grants = entry.get("number"), entry.get("grants", {})
    if type(number) is not int:
        raise _Broken(f"{name}: number is no number")
    for key in ("created", "expires", "revoked"):
        value = entry.get(key)
        if not (isinstance(value, dt.datetime) and value.tzinfo is not None) and (value is not None or key == "created"):
            raise _Broken(f"{name}: {key} is no time with its zone")
    for key, form in _SECRET.items():
        value = entry.get(key, "")
        if not isinstance(value, str) or not (form.fullmatch(value) or (value == "" and entry.get("revoked"))):
            raise _Broken(f"{name}: {key} is not what dpsql wrote")
    if not isinstance(grants, dict) or not all(is_epsilon(value) for value in grants.values()):
        raise _Broken(f"{name}: a grant is the epsilon of one question, above 0 and at most {MOST:g}")
    kept: dict[str, Any] = {key: entry.get(key) for key in _KEPT} | {"grants": dict(grants)}
    if entry.get("revoked"):
        kept |= dict.fromkeys(_SECRET, "")
    return Analyst(name=name, **kept)


def is_epsilon(value: object) -> bool:
    """Return whether a value can be the epsilon of a question: a number above 0, at most `MOST`."""
    return type(value) in (int, float) and math.isfinite(value) and 0 < value <= MOST  # type: ignore[arg-type,operator]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    """Return a text as TOML writes it; JSON's pairs of surrogates are none there."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _moment(value: dt.datetime) -> str:
    return value.astimezone(dt.UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def revoked(analyst: Analyst, now: dt.datetime) -> Analyst:
    """Return an analyst without a token; who was revoked stays as she is."""
    return analyst if analyst.revoked is not None else dataclasses.replace(analyst, salt="", hash="", native="", revoked=now)
