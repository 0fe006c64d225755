"""What is made of the declarations: the SQL macros, the Python functions and the reference page.

``python -m dpsql.calls.render FOLDER`` writes ``sql/macros.sql``, ``dpsql/api.py`` and ``docs/reference.md`` into a checkout;
a test says when they are stale.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from inspect import cleandoc
from pathlib import Path

from dpsql.calls.declaration import Call, Parameter
from dpsql.calls.registry import declarations

WIDTH = 132
_UDF = "system.main.__dp_call_needs_dpsql_load"


def _wrapped(words: Iterable[str], first: str, rest: str, end: str = "") -> str:
    """Return parts joined by commas, broken between them."""
    return textwrap.fill(
        ", ".join(part.replace(" ", "\0") for part in words) + end,
        width=WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False,
    ).replace("\0", " ")


def _sql_name(parameter: Parameter) -> str:
    return f'"{parameter.name}"' if parameter.also else parameter.name


def _sql_default(parameter: Parameter) -> str:
    if parameter.default is None or (parameter.default is False and "None" in parameter.python):
        return "NULL"
    if isinstance(parameter.default, bool):
        return str(parameter.default).lower()
    return f"'{parameter.default}'" if isinstance(parameter.default, str) else str(parameter.default)


def _sql_heads(call: type[Call]) -> list[tuple[str, str]]:
    """Return names and what follows them in the head of a macro."""
    heads = [(p.also or p.name, "" if p.required else f" := {_sql_default(p)}") for p in call.parameters()]
    return [*heads, *((p.name, " := NULL") for p in call.parameters() if p.also)]


def macro(call: type[Call]) -> str:
    """Return the statement that creates the macro of a call, with a comment."""
    parameters = call.parameters()
    quoted = {p.name for p in parameters if p.also}
    heads = [(f'"{name}"' if name in quoted else name) + rest for name, rest in _sql_heads(call)]
    sent = [f"{_sql_name(p)} := {_sql_name(p)}" for p in parameters] + [f"{p.also} := {p.also}" for p in parameters if p.also]
    paragraphs = cleandoc(call.__doc__ or "").split("\n\n")
    status = [f"Privacy status: {call.privacy}.", f"Gives {call.gives}."]
    words = " ".join([f"dp_{call.name}:", *" ".join(paragraphs).split(), *status])
    comment = textwrap.fill(words, width=WIDTH, initial_indent="-- ", subsequent_indent="-- ", break_on_hyphens=False)
    return "\n".join([
        comment,
        _wrapped(heads, f"CREATE OR REPLACE MACRO dp_{call.name}(", "    ", ") AS TABLE"),
        f"FROM system.main.query(system.main.concat('FROM ', {_UDF}('{call.name}',",
        "    system.main.to_json(system.main.struct_pack(",
        "        __database := system.main.current_database(), __schema := system.main.current_schema(),",
        "        __progress := system.main.getvariable('dpsql_progress')::VARCHAR,",
        _wrapped(sent, "        ", "        ", "))::VARCHAR)));"),
    ])


_MACROS_HEAD = """\
-- Made by `python -m dpsql.calls.render` from the declarations in dpsql/calls/; a test fails where they differ.
-- The public interface: every dp_* name is a table macro over one UDF, which is called while the statement is bound and
-- answers with the text of a relation. Names and parameters are the contract. A call is idempotent: the same release is
-- charged once, however often it is bound, explained, viewed or run.
-- The UDF is called __dp_call_needs_dpsql_load, because DuckDB's own error shows that name where it is missing: macros live in
-- the file, functions in the process that called dpsql.load(con). Functions are written system.main.*, and neither || nor {}
-- stands here: a macro in the database could change what they do.
"""
_COMBINE = """\
-- dp_combine: one estimate and its interval from the same analysis of several synthetic tables (Reiter 2003). Free.
-- As an aggregate: SELECT region, unnest(dp_combine(list(estimate), list(variance))) FROM estimates GROUP BY region.
-- Gives estimate, variance, standard_error, df, lower, upper, between, within, sets.
CREATE OR REPLACE MACRO dp_combine(estimates, variances, level := 0.95) AS
system.main.__dp_combine_needs_dpsql_load(estimates::DOUBLE[], variances::DOUBLE[], level::DOUBLE);

-- dp_combine as a table: FROM dp_combine((SELECT list(e) FROM estimates e)), e with columns estimate and variance. Free.
CREATE OR REPLACE MACRO dp_combine(estimates, level := 0.95) AS TABLE
SELECT unnest(system.main.__dp_combine_needs_dpsql_load(
    system.main.list(e.estimate::DOUBLE), system.main.list(e.variance::DOUBLE), level::DOUBLE))
FROM (SELECT unnest(estimates) AS e);
"""


def macros() -> str:
    """Return the file of all macros."""
    return "\n".join([_MACROS_HEAD, *(f"{macro(call)}\n" for call in declarations()), _COMBINE])


_API_HEAD = '''\
"""The calls as Python functions: the names and arguments of the SQL macros, answered with a DuckDB relation.

Made by `python -m dpsql.calls.render` from the declarations in `dpsql.calls`; a test fails where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.relations import Connection, answered
from dpsql.relations import filled as _filled
from dpsql.relations import plain as _plain
'''


def _python_default(parameter: Parameter) -> str:
    if parameter.needed or parameter.required:
        return ""
    return f" = {None if 'None' in parameter.python else parameter.default!r}".replace("'", '"')


_PARAMS = (
    "Values of ? or $1, ... in the text, in order, or of $name by name: None, bool, int, float, Decimal, str, date, datetime, time "
    "or UUID. They become literals before anything else, so the same values are the same question."
)


def _sent(parameter: Parameter, call: type[Call]) -> str:
    """Return how the Python function hands an argument on."""
    if parameter.name == call.parametrized:
        return f"_filled({parameter.name}, params)"
    return f"_plain({parameter.name})" if parameter.plain else parameter.name


def function(call: type[Call]) -> str:
    """Return the source of the Python function of a call."""
    parameters = call.parameters()
    # The source (or what else is required) may be given by place, and the column of a call about one.
    by_place = [p for p in parameters if p.required or (p.needed and p.also)]
    if all(not p.required for p in parameters):
        by_place = list(parameters[:1])
    named = [p for p in parameters if p not in by_place]
    heads = ["con: Connection", *(f"{p.name}: {p.python}{_python_default(p)}" for p in by_place)]
    heads += ["*"] if named else []
    heads += [f"{p.name}: {p.python}{_python_default(p)}" for p in sorted(named, key=lambda p: not p.needed)]
    heads += [] if call.parametrized is None else ["params: Sequence[Any] | Mapping[str, Any] | None = None"]
    sent = [f"{p.name}={_sent(p, call)}" for p in parameters]
    paragraphs = cleandoc(call.__doc__ or "").split("\n\n")
    first, more = f"{paragraphs[0].replace(chr(10), ' ').removesuffix('.')} (``dp_{call.name}``).", paragraphs[1:]
    docstring = [textwrap.fill(f'"""{first}', width=WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)]
    for text in [*more, f"Privacy: {call.privacy}. Gives {call.gives}."]:
        filled = textwrap.fill(" ".join(text.split()), width=WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
        docstring += ["", filled]
    lines = ["    Parameters", "    ----------"]
    for p in parameters:
        lines += [f"    {p.name}", textwrap.fill(p.words, width=WIDTH - 4, initial_indent=" " * 8, subsequent_indent=" " * 8)]
    if call.parametrized is not None:
        lines += ["    params", textwrap.fill(_PARAMS, width=WIDTH - 4, initial_indent=" " * 8, subsequent_indent=" " * 8)]
    return "\n".join([
        f"def {call.function}(",
        *(f"    {head}," for head in heads),
        ") -> duckdb.DuckDBPyRelation:",
        *docstring,
        "",
        *lines,
        '    """',
        _wrapped([f'return answered(con, "{call.name}"', *sent], "    ", "        ", ")"),
    ]) + "\n"


def api() -> str:
    """Return the module of Python functions."""
    return "\n\n".join([_API_HEAD, *(function(call) for call in declarations())]).rstrip() + "\n"


def reference() -> str:
    """Return the reference page."""
    parts = [
        "# Reference of the calls",
        "Made from the declarations in `dpsql/calls/` (`python -m dpsql.calls.render .`); CI fails when it is stale.",
        "Every call is a table macro, `FROM dp_...(...)` or `CALL dp_...(...)`, and a Python function of the same arguments,\n"
        "`dpsql....(con, ...)`. Arguments with `:=` are named and may be left out; NULL stands for the\n"
        "default, but for `mechanism`. Where an argument has two names in SQL, Python has the one in brackets.",
        "\n".join(f"- [`dp_{call.name}`](#dp_{call.name}): {_first_sentence(call)}" for call in declarations())
        + "\n- `dp_combine(estimates, variances, level := 0.95)`, also an aggregate: "
        "one estimate and its interval from several synthetic tables.",
    ]
    for call in declarations():
        doc = cleandoc(call.__doc__ or "")
        names = {p.also or p.name: p for p in call.parameters()}
        heads = [name if p.required else f"{name} := {_sql_default(p)}" for name, p in names.items()]
        parts.append(f"## dp_{call.name}")
        parts.append("```text\n" + textwrap.fill(
            f"dp_{call.name}(" + ", ".join(head.replace(" ", "\0") for head in heads) + ")", width=100, subsequent_indent="    "
        ).replace("\0", " ") + "\n```")
        parts.append(doc.replace("``", "`").replace("<", "&lt;"))
        gives = call.gives.replace("<", "&lt;")
        parts.append(f"**Privacy:** {call.privacy}. **Gives:** {gives}. **Python:** `dpsql.{call.function}`.")
        rows = ["| argument | default | meaning |", "|---|---|---|"]
        for name, p in names.items():
            default = "required" if p.required else f"`{_sql_default(p)}`"
            listed = f" One of {', '.join(f'`{choice}`' for choice in p.choices)}." if len(p.choices) > 3 else ""
            other = f" (also `\"{p.name}\"`)" if p.also else ""
            rows.append(f"| `{name}`{other} | {default} | {p.words}{listed} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _first_sentence(call: type[Call]) -> str:
    return " ".join(cleandoc(call.__doc__ or "").split("\n\n")[0].split())


FILES = {"sql/macros.sql": macros, "dpsql/api.py": api, "docs/reference.md": reference}


def main(folder: str) -> None:
    """Write all of them."""
    for name, made in FILES.items():
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
