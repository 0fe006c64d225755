"""Where randomness comes from: one function, the operating system, no seed; in tests a seed, the same for the same test."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import seeded_entropy
from scipy import stats
from struck import LONG

import dpsql
from dpsql.noise import entropy

PACKAGE = Path(dpsql.__file__).parent
ENTROPY = PACKAGE / "noise" / "entropy.py"
RANDOM_MODULES = {"os.urandom", "os.getrandom", "secrets", "random", "uuid"}
NAMES_ONLY = {"secrets.token_hex", "uuid.uuid4", "uuid.uuid4().hex", "uuid.UUID"}
"""What gives names of temporary objects, and a type."""


def sources(tree: ast.AST) -> set[str]:
    """Every use of a module of random numbers; a name of a temporary object is a text with words before it, or none where hex follows."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            if whole in RANDOM_MODULES or whole.partition(".")[0] in ("secrets", "random", "uuid"):
                found.add(whole)
        if isinstance(node, ast.ImportFrom) and node.module in ("secrets", "random", "uuid", "os") and node.module != "os":
            found.add(f"from {node.module}")
        if isinstance(node, ast.ImportFrom) and node.module == "os" and any("random" in alias.name for alias in node.names):
            found.add("os.urandom")
    return found


def test_every_draw_goes_through_one_function():
    """Draws and salts by `random_bytes` alone; the modules below give names, or spread retries in time, or make what lets people in."""
    used = {str(path.relative_to(PACKAGE)): sources(ast.parse(path.read_text(encoding="utf-8"))) for path in PACKAGE.rglob("*.py")}
    others = {name: found - NAMES_ONLY for name, found in used.items() if found - NAMES_ONLY}
    entrance = {name: others.pop(name) for name in list(others) if name.startswith("serve/")}  # tokens, nonces, numbers of connections
    assert set(entrance) <= {"serve/analysts.py", "serve/flight/front.py", "serve/flight/handles.py", "serve/mysql/door.py", "serve/mysql/login.py"}
    assert others == {"noise/entropy.py": {"os.urandom"}, "books/chain.py": {"random.uniform"}}
    tree = ast.parse(ENTROPY.read_text(encoding="utf-8"))
    callers = [f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and "_source(" in ast.unparse(f)]
    assert callers == ["random_bytes"]


def test_names_of_temporary_objects_are_no_salts():
    """What `secrets` and `uuid` give stands in a name: in a text after words, in the name of a file, or as the key of an instance."""
    salts = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign | ast.Return | ast.keyword) and node.value is not None and ast.unparse(node.value) in ("secrets.token_hex(16)", "secrets.token_hex(32)"):
                salts.append(f"{path.relative_to(PACKAGE)}:{node.value.lineno}")
    assert salts == []


def test_nothing_replaces_the_source_and_no_seed_is_read_from_outside():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "DPSQL_TEST" not in text, path
        assert "_source" not in text or path == ENTROPY or "entropy._source" not in text, path
    tree = ast.parse(ENTROPY.read_text(encoding="utf-8"))
    assigned = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign) and "_source" in ast.unparse(node).partition("=")[0]]
    assert assigned == ["_source: Callable[[int], bytes] = os.urandom"]
    assert "environ" not in ast.unparse(tree) and "global " not in ast.unparse(tree)


@pytest.mark.fresh_noise  # two draws of 32 bytes are equal with a probability of 2^-256
def test_the_installed_package_draws_anew_whatever_its_environment_says():
    """Without the tests' own sitecustomize, a child with the tests' variables draws other bytes each time."""
    program = "from dpsql.noise import entropy; print(entropy._source.__name__, entropy.random_bytes(32).hex())"
    environment = {**os.environ, "DPSQL_TEST_SEED": "1", "DPSQL_TEST_NOISE": "a test", "PYTHONHASHSEED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p != str(seeded_entropy.CHILD))
    said = [subprocess.run([sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=LONG).stdout for _ in range(2)]
    assert all(line.startswith("urandom ") for line in said)
    assert said[0] != said[1]


def test_a_test_draws_the_same_each_time():
    """Two streams of one key are one stream; another key, seed or thread is another one."""
    one, two, other = (seeded_entropy.Streams(key) for key in ("a", "a", "b"))
    first = one(64)
    assert first == two(64) != other(64)
    assert one(64) != first
    drawn = entropy.random_bytes(8)
    assert seeded_entropy.Streams(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])(8) == drawn


def test_threads_draw_from_streams_of_their_own():
    """Numbered as they are started, whichever draws first."""

    def play() -> tuple[list[bytes], bytes]:
        seeded_entropy.SOURCES.use(seeded_entropy.Streams("threads"))
        found, turns = {}, [threading.Event(), threading.Event()]

        def run(number: int) -> None:
            turns[number].wait()
            found[number] = entropy.random_bytes(16)

        threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for number in order:
            turns[number].set()
            threads[number].join()
        return [found[0], found[1]], entropy.random_bytes(16)

    before = seeded_entropy.SOURCES.now
    try:
        order = (0, 1)
        one = play()
        order = (1, 0)
        two = play()
    finally:
        seeded_entropy.SOURCES.use(before)
    assert one == two
    assert len({*one[0], one[1]}) == 3
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(entropy.random_bytes, 8).result() != entropy.random_bytes(8)


def test_children_are_told_the_seed():
    program = "from dpsql.noise import entropy; print(entropy.random_bytes(16).hex())"

    def child() -> str:
        return subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, timeout=LONG).stdout

    def play() -> list[str]:
        before = seeded_entropy.SOURCES.use(seeded_entropy.Streams("children"))
        try:
            return [child(), child()]
        finally:
            seeded_entropy.SOURCES.use(before)

    one, two = play(), play()
    assert one == two
    assert one[0] != one[1]


def test_a_draw_outside_of_tests_is_an_error():
    before = seeded_entropy.SOURCES.use(seeded_entropy.refused)
    try:
        with pytest.raises(AssertionError, match="while no test and no fixture ran"):
            entropy.random_bytes(1)
    finally:
        seeded_entropy.SOURCES.use(before)


@pytest.mark.fresh_noise  # a chi-square at 1e-9 for each bound
@pytest.mark.parametrize("bound", [1, 2, 3, 7, 256, 257, 10**6, 2**64, 3 * 2**100])
def test_integers_below_a_bound_are_uniform(bound):
    drawn = [entropy.integer_below(bound) for _ in range(5000)]
    assert all(0 <= value < bound for value in drawn)
    cells = min(bound, 10)
    counts = [sum(cell == value * cells // bound for value in drawn) for cell in range(cells)]
    wanted = [(-(-(cell + 1) * bound // cells) + (-cell * bound // cells)) / bound * len(drawn) for cell in range(cells)]
    assert cells == 1 or stats.chisquare(counts, wanted).pvalue > 1e-9


def test_integers_below_a_bound_reject_what_is_above(monkeypatch):
    given = iter([b"\xff", b"\x60", b"\x20"])  # of three bits each: 7, 3, 1
    monkeypatch.setattr(entropy, "_source", lambda count: next(given))
    assert entropy.integer_below(5) == 3
    assert entropy.integer_below(5) == 1
