"""Each notebook runs from top to bottom without a word on stderr, asserts its own headline numbers, and is committed executed and small."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from struck import LONG

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


BAR = """
import threading, duckdb, dpsql
from dpsql.running import progress, progress_bar
progress_bar._DELAY = progress_bar._EVERY = 0.05
shown, show = threading.Event(), progress_bar._Display.show

def told(self, *given):
    show(self, *given)
    shown.set()

progress_bar._Display.show = told
print("before")
with progress.Progress("dp_slow") as call:
    call.expect({"count": 100.0})
    with call.stage("count"):
        shown.wait()
print("after")
"""


@pytest.mark.filterwarnings("ignore")  # of the client's own libraries
def test_a_saved_or_exported_notebook_holds_no_bar(tmp_path, monkeypatch):
    monkeypatch.delenv("DPSQL_PROGRESS", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shown = []

    class Client(nbclient.NotebookClient):
        def process_message(self, msg, cell, cell_index):
            shown.append(str(msg["content"].get("data", "")))
            return super().process_message(msg, cell, cell_index)

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BAR)])
    Client(book, timeout=int(LONG), kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any("dp_slow, count" in text for text in shown), "no bar was shown"
    outputs = book.cells[0].outputs
    assert "".join(o.text for o in outputs if o.output_type == "stream") == "before\nafter\n"
    assert [o.data for o in outputs if o.output_type != "stream"] == [{"text/plain": "", "text/html": ""}]
    nbformat.validate(book)


def test_committed_notebooks_hold_no_bar():
    for path in NOTEBOOKS:
        outputs = [o for cell in nbformat.read(path, as_version=4).cells for o in cell.get("outputs", [])]
        assert not [o for o in outputs if o.output_type == "stream" and o.name == "stderr"], path.stem
        assert not [o for o in outputs if "<progress" in str(o.get("data", ""))], path.stem


def test_there_are_five():
    assert [path.stem for path in NOTEBOOKS] == ["choosing_epsilon", "comparing_methods", "quickstart", "sql_cells", "ten_questions"]


@pytest.mark.filterwarnings("ignore")  # of the client's own libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    if path.stem == "sql_cells":
        pytest.importorskip("sql", reason="jupysql")
        monkeypatch.setenv("PYTHONWARNINGS", "ignore:PySpark does not yet fully:FutureWarning")  # jupysql imports it
    monkeypatch.setenv("PLOOMBER_STATS_ENABLED", "false")
    monkeypatch.setenv("DPSQL_PROGRESS", "0")  # shown to a reader, not kept in a file
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(path, as_version=4)
    committed = [cell.get("outputs") for cell in book.cells if cell.cell_type == "code"]
    assert any(committed), "commit it executed"
    assert path.stat().st_size < 200_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbclient.NotebookClient(book, timeout=int(LONG), kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert any("image/png" in o.get("data", {}) for o in outputs)
    assert any('class="dpsql"' in o.get("data", {}).get("text/html", "") for o in outputs)
