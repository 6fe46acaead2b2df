"""Sums in a file can be larger than memory."""

import re
from pathlib import Path

import numpy as np

from attacks.disaggregation.space.mapped_memory import release_pages, slices


def mapped_bytes():
    """What this process has of its mapped files in memory."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"RssFile:\s+(\d+)", status)[1])


def test_a_pass_over_a_mapped_array_does_not_keep_it_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("attacks.disaggregation.space.mapped_memory.SLICE_ENTRIES", 1 << 19)
    monkeypatch.setattr("attacks.disaggregation.space.mapped_memory.MAPPED_BYTES", 1 << 22)
    values = np.random.default_rng(0).normal(size=(64, 1 << 18)).astype(np.float32)
    np.save(tmp_path / "sums.npy", values)
    sums = np.load(tmp_path / "sums.npy", mmap_mode="r")
    before, seen, total = mapped_bytes(), [], 0.0
    monkeypatch.setattr(
        "attacks.disaggregation.space.mapped_memory.release_pages",
        lambda A: [seen.append(mapped_bytes()), release_pages(A)],
    )
    for part in slices(sums):
        total += part.sum()
    assert max(seen) - before < values.nbytes / 4
    np.testing.assert_allclose(total, values.sum(dtype=np.float64))


def test_arrays_that_could_lose_something_are_left_alone(tmp_path):
    np.save(tmp_path / "sums.npy", np.zeros(5000))
    copy_on_write = np.load(tmp_path / "sums.npy", mmap_mode="c")
    copy_on_write[:] = 1
    for array in (copy_on_write, copy_on_write[10:], np.ones(3)):
        release_pages(array)
        assert (array == 1).all()
