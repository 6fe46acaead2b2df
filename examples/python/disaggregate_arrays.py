"""Disaggregate sums and counts that you have as arrays: no scenario, no files."""

import numpy as np

import fedsim
from analytics import windowed_counts

rng = np.random.default_rng(1)
participation = (rng.random((40, 8)) < 0.3).astype(np.uint8)  # rounds × clients: what nobody should learn
updates = rng.normal(size=(8, 50)).astype(np.float32)  # clients × entries
sums = participation @ updates  # what the server stores
counts = windowed_counts(participation, window=5)  # what the devices answer

found = fedsim.disaggregate(sums, counts)
print("every participation right:", np.array_equal(found.participation, participation))
print("largest error of an update:", float(np.abs(found.updates - updates).max().round(3)))
