"""Audit sums and counts that a server has stored."""

import shutil

import numpy as np

import fedsim
from analytics import windowed_counts

rng = np.random.default_rng(2)
participation = (rng.random((60, 10)) < 0.25).astype(np.uint8)
np.save("sums.npy", participation @ rng.normal(size=(10, 80)).astype(np.float32))
windowed_counts(participation, window=6).write_csv("counts.csv")

shutil.rmtree("audit", ignore_errors=True)
found = fedsim.audit(aggregates="sums.npy", counts="counts.csv", out="audit")
print(f"verdict: {found.verdict}")
print(f"clients whose participation is known: {found.findings.separated} of {found.findings.num_clients}")
