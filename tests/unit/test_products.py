"""Matrix products: floating-point flags that BLAS raises without reason decide nothing, and what is not finite is noticed."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from struck import LONG

import dpsql
from dpsql import methods
from dpsql.methods.gaussian_copula import fit as copula
from dpsql.methods.mixture import fit as mixture
from dpsql.methods.mixture.targets import targets
from dpsql.numerics import logistic, nearest_correlation
from dpsql.numerics.products import multiplies
from dpsql.tables.statistics import Statistics

PACKAGE = Path(dpsql.__file__).parent
PRODUCTS = {"dot", "einsum", "inner", "matmul", "norm", "tensordot", "vdot"}


def is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.MatMult)
    of_numpy = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np", "np.linalg", "linalg")
    return of_numpy and node.attr in PRODUCTS


def undecorated(tree: ast.AST) -> list[str]:
    """Functions whose own body has a product and which are not decorated, or are generators, which a decorator cannot serve."""
    found: list[str] = []

    def visit(node: ast.AST, owner: ast.FunctionDef | None) -> None:
        for child in ast.iter_child_nodes(node):
            if is_product(child):
                names = [ast.unparse(mark) for mark in owner.decorator_list] if owner else []
                yields = owner is not None and any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(owner))
                if "multiplies" not in names or yields:
                    found.append(f"{owner.name if owner else 'module'}:{child.lineno}")
            visit(child, child if isinstance(child, ast.FunctionDef) else owner)

    visit(tree, None)
    return found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(a):\n    return a @ a", ["f:2"]),
        ("@multiplies\ndef f(a):\n    a @= a\n    return np.linalg.norm(a)", []),
        ("@multiplies\ndef f(a):\n    def g(b):\n        return np.dot(a, b)\n    return g", ["g:4"]),
        ("@multiplies\ndef f(a):\n    yield a @ a", ["f:3"]),
        ("x = np.einsum('ij,ij->i', a, a)", ["module:1"]),
    ],
)
def test_the_gate_finds_products_without_a_decorator(code, found):
    assert undecorated(ast.parse(code)) == found


def test_every_function_with_a_product_is_decorated():
    missing = {str(path.relative_to(PACKAGE)): undecorated(ast.parse(path.read_text(encoding="utf-8"))) for path in PACKAGE.rglob("*.py")}
    assert {name: found for name, found in missing.items() if found and name != "numerics/products.py"} == {}


# Every product of the package is followed by real flags, as from lanes that nobody reads: INF * 0 is invalid, and BIG * BIG too large.
FLAGGED = """
import ast, importlib.abc, importlib.machinery, sys, warnings
import numpy as np

raised = 0

def flagged(value):
    global raised
    raised += 1
    np.float32(np.inf) * np.float32(0)
    np.float32(3e38) * np.float32(3e38)
    return value

class Wrap(ast.NodeTransformer):
    def visit_BinOp(self, node):
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult):
            return node
        return ast.copy_location(ast.Call(ast.Name("flagged_", ast.Load()), [node], []), node)

    def visit_Call(self, node):
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "np" and node.func.attr in PRODUCTS):
            return node
        return ast.copy_location(ast.Call(ast.Name("flagged_", ast.Load()), [node], []), node)

class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, **named):
        return compile(ast.fix_missing_locations(Wrap().visit(ast.parse(data))), path, "exec", dont_inherit=True)

    def get_code(self, name):
        return self.source_to_code(self.get_data(self.get_filename(name)), self.get_filename(name))

    def exec_module(self, module):
        module.__dict__["flagged_"] = flagged
        super().exec_module(module)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "dpsql":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec

sys.meta_path.insert(0, Finder())
warnings.simplefilter("error")
import duckdb, dpsql
from dpsql import methods

con = duckdb.connect()
dpsql.load(con)
for name, neighbors in (("t", "add_remove"), ("u", "replace_one")):
    con.execute(f"CREATE TABLE {name} AS SELECT i AS id, i % 2 = 0 AS a, (i * 7 % 11 < 5) AS b, "
                "['x', 'y', 'z'][1 + i * i % 3]::ENUM('x', 'y', 'z') AS c, (i * 13 % 50)::DOUBLE AS v, i * 3 % 20 AS w FROM range(500) AS r(i)")
    for column in "abc":
        con.execute(f"ALTER TABLE {name} ALTER {column} SET NOT NULL")
    con.execute(f"CALL dp_protect('{name}', epsilon := 1000, delta := 1e-6, neighbors := '{neighbors}')")
    for column, upper in (("v", 50), ("w", 20)):
        con.execute(f"CALL dp_declare('{name}', '{column}', lower := 0, upper := {upper}, bins := 5, nullable := false)")
COLUMNS = {"laplace_sanitizer": "c", "multinomial_dirichlet": "c", "beta_binomial": "a", "poisson_gamma": "c", "dp_prior": "c",
           "perturbed_histogram": "v", "smoothed_histogram": "v", "empirical_cdf": "v", "modips": "c v w", "dpcopula_kendall": "v w"}
SHORT = {"latent_class": ", options := {'classes': 8, 'steps': 30}", "gaussian_copula": ", options := {'calibration_steps': 20}"}
for name in methods.names():
    if name in ("weak_domain", "stable_selection"):
        continue  # they draw texts of an open domain; no matrix is in them
    columns = COLUMNS.get(name, "a b c v w").split()
    for table in ("t", "u"):
        before = raised
        try:
            rows = con.execute(f"SELECT count(*) FROM dp_synthesize('{table}', epsilon := 2, method := '{name}', columns := {columns}, release := '{name}-{table}'{SHORT.get(name, '')})").fetchone()[0]
        except duckdb.Error as error:
            print("refused", table, name, str(error).splitlines()[0])
        else:
            print("ran", name, "with" if raised > before else "without", "products", rows)
            break
con.execute("FROM dp_query('SELECT c, avg(v), var_samp(v), corr(v, w), median(w), count(*) FROM t GROUP BY c', epsilon := 2)").fetchall()
con.execute("CREATE TABLE s AS FROM dp_synthesize('t', epsilon := 2, release := 'r')")
con.execute("FROM dp_evaluate('t', 's')").fetchall()
con.execute("FROM dp_evaluate('t', 's', report := 'values')").fetchall()
con.execute("FROM dp_marginals('t', epsilon := 2, k := 2, release := 'm')").fetchall()
con.execute("FROM dp_report('m')").fetchall()
print("raised", raised)
"""


def test_flags_of_blas_change_nothing(tmp_path):
    """Every method's fit and sample, and the other calls, with each warning an error and the flags raised at every product."""
    program = f"PRODUCTS = {PRODUCTS!r}\n{FLAGGED}"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, timeout=LONG, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RuntimeWarning" not in done.stdout, done.stdout
    ran = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines() if line.startswith("ran ")}
    assert ran.keys() == set(methods.names()) - {"weak_domain", "stable_selection"}, done.stdout
    assert {name for name, how in ran.items() if how == "with"} >= {"latent_class", "gaussian_copula", "dpcopula_kendall", "modips", "aggregate_seeded"}


def test_without_the_decorator_such_a_flag_is_a_warning():
    """What the test above would see: the flags are real."""

    def plain(matrix):
        return matrix * np.float32(0)

    with pytest.raises(RuntimeWarning, match="invalid value"):
        plain(np.array([np.inf], np.float32))
    assert np.isnan(multiplies(plain)(np.array([np.inf], np.float32))).all()


def test_a_fit_that_diverges_gives_independent_columns(monkeypatch):
    rng = np.random.default_rng(0)
    tables = {clique: 50.0 + rng.integers(0, 50, [(2, 3)[i] for i in clique]) for clique in [(0,), (1,), (0, 1)]}
    given = targets(Statistics((2, 3), tables, dict.fromkeys(tables, 3.0), "gaussian"))
    monkeypatch.setattr(mixture._Descent, "_gradients", lambda self, *_: (np.full_like(self.logits, np.nan), np.full_like(self.class_logits, np.nan)))
    found = mixture.fit_mixture(given, classes=4, steps=3, pull=1.0, seed=0)
    assert found.values.shape == (5, 4)
    assert np.allclose(found.values[:2].sum(0), 1) and np.allclose(found.values[2:].sum(0), 1)
    assert np.allclose(found.values, (given.one_way / np.repeat([given.one_way[:2].sum(), given.one_way[2:].sum()], [2, 3]))[:, None])
    assert np.allclose(found.shares, 0.25)


def test_a_calibration_that_diverges_keeps_its_start(monkeypatch):
    free = copula.FreeColumns.of([2, 2])
    given = copula.Targets(np.full((2, 2), 0.25, np.float32), np.ones((2, 2), np.float32), np.full(2, 0.5, np.float32))
    loadings, offsets = np.ones((2, 1), np.float32), np.zeros(2, np.float32)
    monkeypatch.setattr(copula._Half, "gradient", lambda self, loadings, offsets, size: (loadings * np.nan, offsets * np.nan))
    found = copula.calibrate(loadings, offsets, free, given, copula.Schedule(steps=3, draws=64, rate=0.1))
    assert found[0] is loadings and found[1] is offsets


def test_a_regression_that_diverges_gives_the_overall_shares(monkeypatch):
    from scipy import optimize

    monkeypatch.setattr(optimize, "minimize", lambda loss, start, **_: optimize.OptimizeResult(x=start * np.nan))
    found = logistic.fit(np.eye(4), np.array([0, 0, 0, 1]), 2)
    assert np.allclose(found.probabilities(np.eye(4)), [[3.5 / 5, 1.5 / 5]] * 4)


def test_newton_takes_no_step_to_what_is_no_number(monkeypatch):
    spectrum, calls = nearest_correlation._spectrum, []

    def sometimes(matrix, y):
        calls.append(y)
        found = spectrum(matrix, y)
        return dataclasses.replace(found, objective=float("nan")) if len(calls) == 2 else found

    monkeypatch.setattr(nearest_correlation, "_spectrum", sometimes)
    found = nearest_correlation.nearest_correlation([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    assert len(calls) > 2
    assert np.allclose(found[0], [1.0, 0.7607, 0.1573], atol=1e-4)
