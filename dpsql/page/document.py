"""The page: sections in the order in which a reader asks. Every section of a page with raw figures says so in its heading.

Privacy: None without a comparison: post-processing. With one the whole page is NOT PRIVATE and is marked throughout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpsql.page import answers, parts, steps, words
from dpsql.page.content import Answer, Content, Link, LinkedTable, LinkedTables
from dpsql.page.markup import details, facts, number, paragraphs, section, text
from dpsql.page.style import CSS
from dpsql.text.relation import at_most

MARKER = "<!-- dpsql report of "
WARNING = "Not private. Not for publication."
_METHODS = {
    "add_remove": "presence of a unit (add or remove)",
    "replace_one": "contents of a unit (replace one; the number of rows is public)",
}


_UNITS, _QUERY, _LINKED = "contributions", "query", "synthesize_tables"
_MADE = {
    "marginals": "Noisy tables",
    "synthesize": "A synthetic table",
    "aggregates": "Counts of combinations",
    "histogram": "A histogram",
    "discover": "A list of values",
    _QUERY: "The answer to a query",
    _UNITS: "A histogram of rows per unit",
    _LINKED: "A synthetic database of linked tables",
}
_MOST_NAMED = 40
_COUNTED_UNITS = (
    "Counts are numbers of units, not of rows: every unit counts 1, and a row that is one of k rows of its parent 1/k of the "
    "parent's row. This is how they were measured: the noise does not grow with the rows that a unit has."
)
_COUNTED_ROWS = (
    "Counts are numbers of rows: each table was measured by itself, and its rows are given to parents at random. The noise grows "
    "with the rows that links allow a unit."
)


def marker(identifier: str, *, compared: bool) -> str:
    """Return the first line of a report, by which it is known and may be replaced by a newer one of the same kind."""
    return f"{MARKER}{text(identifier)}{', with a comparison that is not private' if compared else ''} -->"


def page(content: Content) -> str:
    """Return the whole page as HTML that needs no other file.

    Notes
    -----
    Privacy: None: post-processing, unless ``content.comparison`` is given: then NOT PRIVATE.
    """
    name = str(content.manifest["release"])
    open_, compared = _Sections(content), content.comparison is not None
    listed = [
        open_.answer(), open_.cost(), open_.guarantee(), open_.accuracy(), *open_.linked(), open_.tables(), open_.distributions(),
        open_.values(), open_.dependence(), open_.lists(), open_.comparison(), open_.provenance(),
    ]
    links = "".join(f'<a href="#{key}">{text(title)}</a>' for key, title, body in listed if body)
    sections = "".join(section(title, body, key=key, private=not compared) for key, title, body in listed if body)
    banner = (
        f'<div class="banner" role="alert">{WARNING} This page shows figures of the protected table itself.</div>'
        if compared
        else ""
    )
    water = '<div class="watermark" aria-hidden="true"><span>NOT FOR PUBLICATION</span></div>' if compared else ""
    title = f"{'NOT FOR PUBLICATION: ' if compared else ''}{_title(content)}"
    return (
        f"{marker(name, compared=compared)}\n<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex">'
        # Nothing may be fetched or run, whatever a name or value says.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        f'<title>{text(title)}</title><link rel="icon" href="data:,"><style>{CSS}</style></head>'
        f"<body{' class=not-private' if compared else ''}>{banner}{water}{_header(content)}"
        f"<main>{_nav(links)}{sections}</main>{_footer(content)}</body></html>\n"
    )


def _nav(links: str) -> str:
    return f'<nav aria-label="Sections">{links}</nav>'


def _header(content: Content) -> str:
    manifest, charge = content.manifest, content.manifest["charge"]
    tiles = [
        (number(at_most(float(charge["epsilon"])), 5), "epsilon of this release"),
        (number(float(charge["delta"])), "delta"),
    ]
    tiles += _tiles_of_answer(content.answer) if content.answer is not None else [
        (
            ("" if content.public_total else "≈ ") + number(content.rows) if content.rows is not None else "–",
            f"{_counted_things(content)}, {'public' if content.public_total else 'as released'}",
        ),
        *([(str(len(content.linked.tables)), "tables")] if content.linked is not None else []),
        (str(len(content.domain.rows)), "column" if len(content.domain.rows) == 1 else "columns"),
    ]
    shown = "".join(f'<div class="tile"><b>{text(value)}</b><span>{text(about)}</span></div>' for value, about in tiles)
    origin = _MADE.get(str(manifest["operation"]), str(manifest["operation"]))
    how = f" by the method {content.method}" if content.method else ""
    lead = f"{origin}{how}, from {manifest['source']}, released {str(manifest['created'])[:10]}"
    if content.answer is not None:
        lead = f"{origin}: {content.answer.rows}. Released {str(manifest['created'])[:10]} as {manifest['release']}"
    return (
        f'<header><p class="kicker">Differentially private release</p><h1>{text(_title(content))}</h1>'
        f'<p class="lead">{text(lead)}</p>'
        f'<div class="tiles">{shown}</div>{paragraphs(content.counted or "")}</header>'
    )


def _title(content: Content) -> str:
    return str(content.manifest["release"]) if content.answer is None else content.answer.question


def _tiles_of_answer(answer: Answer) -> list[tuple[str, str]]:
    rows = len(answer.listing.rows)
    if answer.listing.head[0] == "":  # no groups: a line an aggregate
        return [(str(rows), "number" if rows == 1 else "numbers")]
    return [(f"{answer.groups:,}", "group" if answer.groups == 1 else "groups")]


def _counted_things(content: Content) -> str:
    """Return what the number in the headline is a number of."""
    if content.manifest["operation"] in (_UNITS, _LINKED):
        return "units"
    return "rows" if content.counted is None else "kept rows"


def _footer(content: Content) -> str:
    versions = content.manifest["versions"]
    compared = content.comparison is not None
    last = WARNING if compared else "Nothing on this page was computed from the protected table except the release itself."
    line = f"Made by dpsql {versions['dpsql']}. {last}"
    return f"<footer>{text(line)}</footer>"


class _Sections:
    """The sections, each as (key, title, HTML); an empty text where a release has nothing to say."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.manifest = content.manifest

    def answer(self) -> tuple[str, str, str]:
        """Show the answer of a query, and how it came about."""
        answer = self.content.answer
        if answer is None:
            return "answer", "", ""
        how = "<h3>How it came about</h3>" + answers.explanation(answer)
        return "answer", "The answer", answers.section(answer) + how

    def cost(self) -> tuple[str, str, str]:
        """Say what was measured, and what it cost."""
        manifest, charge = self.manifest, self.manifest["charge"]
        unit, most, epsilon = manifest["privacy_unit"], manifest["max_contributions"], number(at_most(float(charge["epsilon"])), 5)
        measured = "" if manifest["operation"] in (_UNITS, _QUERY, _LINKED) else f", at most {most} of them measured"
        who = "one row" if unit is None else f"all rows of one value of {unit}{measured}"
        if self.content.linked is not None:
            who = f"{who}, and all rows of the other tables that belong to {'it' if unit is None else 'them'}"
        rows = [
            ("Source", manifest["source"]),
            ("Measured relation", manifest["query"]),
            ("Privacy loss of this release", f"epsilon = {epsilon} at delta = {number(float(charge['delta']))}"),
            ("The same as zero-concentrated loss", f"rho = {number(at_most(float(charge['rho'])), 5)}"),
            ("Neighbouring tables differ in", _METHODS.get(str(manifest["neighbors"]), str(manifest["neighbors"]))),
            ("Privacy unit", who),
            ("Accountant", manifest["accountant"]),
        ]
        body = facts(rows) + parts.listing(self.content.measured)
        if self.content.rules is not None:
            body += parts.listing(self.content.rules)
        if self.content.notes:
            body += "<h3>Notes</h3>" + parts.items(self.content.notes)
        options = {k: v for k, v in manifest["parameters"].items() if v not in (None, {}, [])}
        body += details("Parameters of the call", f"<p><code>{text(json.dumps(options, ensure_ascii=False))}</code></p>")
        if self.content.domain.rows:
            body += details("Columns and their public domains", parts.listing(self.content.domain))
        return "cost", "What was measured, and what it cost", body

    def guarantee(self) -> tuple[str, str, str]:
        """Say what is guaranteed."""
        manifest, charge = self.manifest, self.manifest["charge"]
        every = manifest["operation"] in (_UNITS, _QUERY, _LINKED)
        unit = words.unit_words(manifest["privacy_unit"], None if every else int(manifest["max_contributions"] or 1))
        if self.content.linked is not None:
            alone = manifest["privacy_unit"] is None
            unit += " with all rows of the linked tables that belong to it" if alone else " in all linked tables"
        promise = words.promise(float(charge["epsilon"]), float(charge["delta"]), str(manifest["neighbors"]), unit)
        body = paragraphs(*promise, words.over_all(self.content.budget))
        if self.content.synthetic_rows is not None:
            body += paragraphs(words.synthetic_rows())
        body += (
            "<h3>What it rests on</h3>"
            + parts.items(words.assumed())
            + "<h3>What it does not promise</h3>"
            + parts.items(words.not_promised())
        )
        # The comparison comes first: on such a page the guarantee does not hold.
        if self.content.comparison is not None:
            body = (
                paragraphs(
                    "The guarantee is that of the release. It does not hold for this page, which also shows figures of the "
                    "protected table."
                )
                + body
            )
        return "guarantee", "What is guaranteed", body

    def accuracy(self) -> tuple[str, str, str]:
        """Say how exact the numbers are."""
        counted = self.content.counted
        if self.content.answer is not None:
            explanation = (
                "The noise was drawn from a known distribution, so its errors are known without looking at the data: beside each "
                "number of the answer is where it lies without its noise, in 95 of 100 cases. The same noise is on large groups "
                "and small ones, so large ones are relatively more exact. Rows left out and values moved to a bound are not in "
                "the intervals."
            )
            return "accuracy", "How exact the numbers are", paragraphs(explanation, counted or "")
        if self.content.linked is not None:
            explanation = (
                "The noise was drawn from a known distribution, so its errors are known without looking at the data. For each "
                "table, below, is said how far a released number of units is from the one that was counted, on average and in 95 "
                "of 100 cases, and how far the synthetic tables are from the released ones. A distance is the share of units in a "
                "wrong cell; what the noise alone would make of it stands beside it. A synthetic table that is nearer to the "
                "released ones than that has left out much of their noise; one that is farther has lost some of what was measured."
            )
            return "accuracy", "How exact the numbers are", paragraphs(explanation, counted or "")
        true = "the true one" if counted is None else "the exact number of what was counted"
        explanation = (
            "The noise was drawn from a known distribution, so its errors are known without looking at the data: the table above "
            f"says how far a released count is from {true} on average, and in 95 of 100 cases. In the charts these are the "
            "vertical or horizontal lines. The same noise is on large counts and small ones, so large ones are relatively more "
            "exact."
        )
        # Without a half width in any chart no error band is drawn, so none is explained.
        if not any(column.half_width is not None for column in self.content.columns):
            explanation = (
                "What was released here are not plain counts with noise of a known size on each, so the charts carry no error "
                "bands. What is known of the method's errors is said above, under measurements and notes."
            )
        return "accuracy", "How exact the numbers are", paragraphs(explanation, counted or "")

    def linked(self) -> list[tuple[str, str, str]]:
        """Show linked tables one by one, and their links."""
        return [] if self.content.linked is None else _linked_sections(self.content.linked)

    def tables(self) -> tuple[str, str, str]:
        """Show what was released as cross-tables."""
        tables = self.content.tables
        return "tables", "The cross-table" if len(tables) == 1 else "The cross-tables", "".join(map(parts.cross_table, tables))

    def distributions(self) -> tuple[str, str, str]:
        """Show one chart a column."""
        columns = self.content.columns
        if not columns:
            return "columns", "Columns one by one", ""
        left = self.content.columns_left_out
        more = ""
        if left:
            shown = ", ".join(left[:40]) + (f" and {len(left) - 40} more" if len(left) > 40 else "")
            which = "that come first" if self.content.maps is None else self.content.maps.which
            more = paragraphs(f"Shown are the {len(columns)} columns {which}; {len(left)} are left out: {shown}.")
        about = ""
        if self.content.sets > 1:
            about = paragraphs(f"The release has {self.content.sets} synthetic tables; their mean is shown.")
        return "columns", "Columns one by one", parts.legend(columns) + about + more + parts.figures(columns)

    def values(self) -> tuple[str, str, str]:
        """Show where values lie inside bins."""
        return "values", "Inside the bins", steps.section(self.content.fine)

    def dependence(self) -> tuple[str, str, str]:
        """Show maps of pairs."""
        maps = self.content.maps
        if maps is None or len(maps.names) < 2:
            return "pairs", "Dependence of pairs", ""
        return "pairs", "Dependence of pairs", parts.pairs(maps)

    def lists(self) -> tuple[str, str, str]:
        """List released values or combinations."""
        return "lists", "Most frequent released values", "".join(map(parts.listing, self.content.listings))

    def comparison(self) -> tuple[str, str, str]:
        """Show what only the custodian may see."""
        comparison = self.content.comparison
        if comparison is None:
            return "comparison", "", ""
        warning = f"<p><strong>{WARNING}</strong> Computed from the protected table, without noise.</p>"
        return (
            "comparison",
            "Comparison with the protected table",
            warning + paragraphs(*comparison.notes) + "".join(map(parts.listing, comparison.listings)),
        )

    def provenance(self) -> tuple[str, str, str]:
        """Say where it can be checked."""
        manifest, charge = self.manifest, self.manifest["charge"]
        rows = [
            ("Release", manifest["release"]),
            ("Ledger entry of the charge (hash)", charge["hash"]),
            ("Released numbers (SHA-256)", manifest["sha256"]),
            ("Made", str(manifest["created"]).replace("T", " ").replace("+00:00", " UTC")),
            ("Versions", ", ".join(f"{k} {v}" for k, v in manifest["versions"].items())),
        ]
        body = facts(rows)
        if self.content.ledger is not None:
            body += parts.listing(self.content.ledger)
            holds = "holds" if self.content.chain_holds else "does NOT hold: the books were edited"
            body += paragraphs(f"Every entry carries the hash of the one before it. The chain of this source {holds}.")
        else:
            body += paragraphs("The ledger that this release was charged on is not in the database that made this page.")
        return "provenance", "Provenance", body


def _linked_sections(of: LinkedTables) -> list[tuple[str, str, str]]:
    """Return the sections as (key, title, HTML), the overview first."""
    counts = _COUNTED_ROWS if of.independent else _COUNTED_UNITS
    listed = [("database", "The synthetic database", paragraphs(*of.about) + parts.listing(of.listing) + paragraphs(counts))]
    listed += [(f"table-{number}", f"Table {table.name}", _linked_table(table)) for number, table in enumerate(of.tables, 1)]
    return [*listed, ("links", "How the tables are linked", "".join(map(_section_of_link, of.links)))]


def _linked_table(of: LinkedTable) -> str:
    body = paragraphs(*of.about) + parts.listing(of.errors)
    if of.rules:
        body += "<h3>Rules that rows obey</h3>" + parts.items(of.rules)
    if of.columns:
        body += "<h3>Columns one by one</h3>" + parts.legend(of.columns) + _names_left_out(of.left_out) + parts.figures(of.columns)
    if of.maps is not None:
        body += "<h3>Dependence of pairs</h3>" + parts.pairs(of.maps)
    return body


def _names_left_out(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return paragraphs(f"{len(names)} columns are left out: {', '.join(names[:_MOST_NAMED])}{more}.")


def _section_of_link(of: Link) -> str:
    body = f"<h3>{text(of.title)}</h3>" + paragraphs(*of.about)
    charts = [of.fan_out, *of.ordered]
    return body + parts.legend(charts) + parts.figures(charts) + "".join(map(parts.listing, of.listings))
