"""Python runs this at the start of every child process of a test: what it draws comes from the test's seed too.

The package knows nothing of it: the module that draws is changed as soon as it is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import random
import sys
from pathlib import Path

KEY = os.environ.get("DPSQL_TEST_NOISE")
SEED = os.environ.get("DPSQL_TEST_SEED", "0")


class Seeding(importlib.abc.MetaPathFinder):
    """Finds ``dpsql.noise.entropy``, and replaces its source once it is loaded."""

    def find_spec(self, name, path, target=None):
        if name != "dpsql.noise.entropy":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module._source = random.Random(f"{SEED}\n{KEY}").randbytes

        spec.loader.exec_module = exec_module
        return spec


if KEY:
    sys.path.remove(str(Path(__file__).parent))
    sys.meta_path.insert(0, Seeding())
