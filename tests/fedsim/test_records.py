"""The transcript on disk: written round by round, continued, and read back."""

import os

import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.records import Transcript, TranscriptWriter, rounds_recorded

LAYERS = ((2, 3), (4,))
SUMS = np.random.default_rng(0).normal(size=(5, 10)).astype(np.float32)


def write(folder, sums, *, keep=0):
    with TranscriptWriter(folder, len(SUMS), LAYERS, keep=keep) as writer:
        for r, total in enumerate(sums, start=keep):
            writer.append(total, cohort_size=r, weight=0.5 * r)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_transcript_is_numpys_own_file(tmp_path):
    write(tmp_path / "t", SUMS)
    np.save(tmp_path / "sums.npy", SUMS)
    assert (tmp_path / "t/aggregates.npy").read_bytes() == (tmp_path / "sums.npy").read_bytes()
    read = Transcript.load(tmp_path / "t")
    np.testing.assert_array_equal(read.aggregates, SUMS)
    np.testing.assert_array_equal(read.cohort_sizes, range(5))
    assert read.layer_shapes == LAYERS


@pytest.mark.parametrize("keep", range(6))
def test_what_follows_the_rounds_that_are_kept_is_written_anew(tmp_path, keep):
    write(tmp_path / "whole", SUMS)
    write(tmp_path / "parts", SUMS[:keep])
    write(tmp_path / "parts", -SUMS[keep:], keep=keep)
    write(tmp_path / "parts", SUMS[keep:], keep=keep)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_rounds_that_are_gone_cannot_be_kept(tmp_path):
    write(tmp_path, SUMS[:2])
    with pytest.raises(UserError, match="is shorter than it was"):
        write(tmp_path, SUMS[3:], keep=3)
    os.truncate(tmp_path / "aggregates.npy", 130)
    with pytest.raises(UserError, match=r"aggregates\.npy is shorter than it was"):
        write(tmp_path, SUMS[2:], keep=2)


def test_one_process_at_a_time_writes(tmp_path):
    with TranscriptWriter(tmp_path, len(SUMS), LAYERS) as writer:
        writer.append(SUMS[0], cohort_size=1, weight=1.0)
        if (child := os.fork()) == 0:
            try:
                write(tmp_path, SUMS)
            except UserError as error:
                os._exit("another process is working there" in str(error))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 1
    assert rounds_recorded(tmp_path) == 1


def test_an_unfinished_transcript_is_not_read(tmp_path):
    write(tmp_path, SUMS[:3])
    assert rounds_recorded(tmp_path) == 3
    with pytest.raises(UserError, match="not a finished transcript"):
        Transcript.load(tmp_path)
