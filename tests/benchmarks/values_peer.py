"""Run by values.py with the Python that DPSQL_PEER names, in an environment with dpmm 0.1.9: MST over PrivTree bins.

    values_peer.py FOLDER EPSILON DELTA

reads raw.csv and domain.json (bounds or categories of each column) from the folder and writes synthetic.csv. A tenth of epsilon goes
to the bins, as the package does by default; here the two parts add up to EPSILON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
from dpmm.pipelines.mst import MSTPipeline

folder, epsilon, delta = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
domain = json.loads((folder / "domain.json").read_text())
texts = {column: str for column, found in domain.items() if "categories" in found}
frame = pd.read_csv(folder / "raw.csv", dtype=texts, keep_default_na=False, na_values={c: [""] for c in domain if c not in texts})
for column in texts:
    frame[column] = frame[column].astype("category")
pipeline = MSTPipeline(epsilon=0.9 * epsilon, delta=delta, proc_epsilon=0.1 * epsilon)
pipeline.fit(frame, domain=domain)
pipeline.generate(len(frame)).to_csv(folder / "synthetic.csv", index=False)
