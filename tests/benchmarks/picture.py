"""The picture of the README: answers with their intervals beside the truth, a synthetic column over the raw one.

    python tests/benchmarks/picture.py [docs/picture.svg]

On the table of `dpsql demo` (20,000 made-up people): an answer for epsilon 0.5, a synthetic table for epsilon 1. Every run draws other
noise. Needs matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import matplotlib
import numpy as np
from matplotlib import pyplot as plt

import dpsql
from dpsql.demo import DECLARE, PROTECT, create_people

ASKED = "SELECT sector, round(median(income)) AS income FROM people WHERE sector IS NOT NULL GROUP BY sector ORDER BY income DESC"


def main(path: Path) -> None:
    """Draw and write it."""
    con = duckdb.connect()
    dpsql.load(con, progress=False)
    create_people(con)
    for statement in (PROTECT, *DECLARE):
        con.execute(statement)
    answer = dpsql.query(con, ASKED, epsilon=0.5, confidence=0.95).df().astype({"income": float})
    truth = dict(con.execute(ASKED).fetchall())
    con.execute("CREATE TABLE synthetic AS FROM dp_synthesize('people', epsilon := 1.0)")
    raw, drawn = (con.sql(f"SELECT income FROM {table} WHERE income IS NOT NULL").df()["income"].astype(float) for table in ("people", "synthetic"))
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dpsql", "font.family": "sans-serif", "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    places = np.arange(len(answer))[::-1]
    wide = [answer["income"] - answer["income_low"], answer["income_high"] - answer["income"]]
    left.errorbar(answer["income"], places, xerr=wide, fmt="o", color="#1f57a8", capsize=3, label="answer, 95 % interval")
    left.plot([float(truth[sector]) for sector in answer["sector"]], places, "kx", label="truth")
    left.set(yticks=places, yticklabels=answer["sector"], title="Median income by sector, epsilon 0.5")
    left.legend(frameon=False)
    bins = np.arange(0, 200_001, 5_000)
    right.hist(raw, bins, color="#bccbe2", label="raw")
    right.hist(drawn, bins, histtype="step", color="#1f57a8", linewidth=1.4, label="synthetic")
    right.set(title="Income, synthetic table at epsilon 1", ylabel="people")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs" / "picture.svg")
