"""What is wrong with a problem is said where it is born; what is odd about it has a defined meaning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.report import ParticipationReport, windowed_counts
from attacks.disaggregation import DisaggregationProblem, ProblemError
from tests.helpers.planted import planted

A = np.ones((8, 3))


def report(*rows, noise_sd=0.0):
    return ParticipationReport.from_rows(rows, noise_sd=noise_sd)


def with_bad_entry(value):
    bad = A.copy()
    bad[5, 2] = value
    return bad


BAD = {
    "nan": (
        lambda: DisaggregationProblem(with_bad_entry(np.nan), None),
        "aggregates: nan in round 5, entry 2",
    ),
    "infinite": (lambda: DisaggregationProblem(with_bad_entry(np.inf), None), "aggregates: inf in round 5"),
    "one dimension": (lambda: DisaggregationProblem(np.ones(4), None), r"aggregates: \(4,\)"),
    "more than 64 bits": (lambda: DisaggregationProblem(A.astype(np.longdouble), None), "at most 64 bits"),
    "squares overflow": (lambda: DisaggregationProblem(A * 1e200, None), "largest entry is .*e\\+200"),
    "squares underflow": (lambda: DisaggregationProblem(A * 1e-200, None), "largest entry is .*e-200"),
    "no rounds": (lambda: DisaggregationProblem(np.ones((0, 3)), None), "at least one round"),
    "complex": (lambda: DisaggregationProblem(A + 0j, None), "complex128, expected real"),
    "window beyond": (
        lambda: DisaggregationProblem(A, report((0, 4, 9, 1))),
        "client 0, rounds 4..8.*only 8 rounds",
    ),
    "nobody": (lambda: DisaggregationProblem(A, report()), "no client in the report"),
    "too few clients": (
        lambda: DisaggregationProblem(A, report((0, 0, 4, 1), (1, 0, 4, 1)), num_clients=1),
        "num_clients: 1 is fewer than the 2",
    ),
    "no clients": (lambda: DisaggregationProblem(A, None, num_clients=0), "num_clients: 0"),
    "same window, two counts": (
        lambda: DisaggregationProblem(A, report((0, 0, 4, 1), (0, 0, 4, 2))),
        "client 0: counts contradict each other",
    ),
    "falling cumulative": (
        lambda: DisaggregationProblem(A, report((0, 0, 4, 3), (0, 0, 8, 2))),
        "client 0: counts contradict each other",
    ),
    "cumulative too fast": (
        lambda: DisaggregationProblem(A, report(("a", 0, 4, 0), ("a", 0, 6, 3))),
        "client a: counts contradict each other",
    ),
    "overlap impossible": (
        lambda: DisaggregationProblem(A, report((0, 0, 4, 4), (0, 2, 6, 1))),
        "client 0: counts contradict each other",
    ),
    "cohorts of other length": (
        lambda: DisaggregationProblem(A, None, num_clients=3, cohort_sizes=[1, 2]),
        r"cohort_sizes: shape \(2,\)",
    ),
    "cohort too large": (
        lambda: DisaggregationProblem(A, None, num_clients=3, cohort_sizes=[1, 4] + [0] * 6),
        "cohort_sizes: 4 in round 1, expected a whole number from 0 to the 3",
    ),
    "cohort of nan": (
        lambda: DisaggregationProblem(A, None, num_clients=3, cohort_sizes=[np.nan] * 8),
        "cohort_sizes: nan in round 0",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_names_field_value_and_expectation(make, message):
    with pytest.raises(ProblemError, match=message):
        make()


def test_cumulative_counters_become_differences():
    windows = DisaggregationProblem(A, report((0, 0, 3, 1), (0, 0, 5, 2), (0, 0, 8, 2))).windows
    assert windows.count.tolist() == [[1, 1, 0]]
    assert windows.lengths.tolist() == [[3, 2, 3]]
    assert not windows.overlapping


def test_differences_of_noisy_counters_add_their_variances():
    """Those of two readings each, however many there were before."""
    readings = [(0, 0, 2, 0.4), (0, 0, 4, 1.2), (0, 0, 5, 1.3), (0, 0, 8, 1.9)]
    windows = DisaggregationProblem(A, report(*readings, noise_sd=0.3)).windows
    assert windows.count[0] == pytest.approx([0.4, 0.8, 0.1, 0.6])
    assert windows.sd[0] == pytest.approx([0.3] + [0.3 * np.sqrt(2)] * 3)
    backwards = [(0, 8 - stop, 8, count) for _, _, stop, count in readings]
    windows = DisaggregationProblem(A, report(*backwards, noise_sd=0.3)).windows
    assert windows.sd[0] == pytest.approx([0.3 * np.sqrt(2)] * 3 + [0.3])


def test_overlapping_windows_stay_constraints():
    windows = DisaggregationProblem(A, report((0, 0, 4, 2), (0, 2, 6, 3))).windows
    assert len(windows.constraints(0)) == 2
    good, bad = np.array([[1, 0, 1, 0, 1, 1, 0, 0]], np.uint8), np.array([[1, 1, 0, 0, 1, 1, 0, 0]], np.uint8)
    assert windows.meet(good).all()
    assert not windows.meet(bad).any()


def test_missing_answers_and_silent_clients_share_the_layout():
    windows = DisaggregationProblem(
        A, report((0, 0, 4, 2), (0, 4, 8, None), (1, 4, 8, 3), (2, 0, 4, None))
    ).windows
    assert windows.shared
    assert np.array_equal(windows.count, [[2, np.nan], [np.nan, 3], [np.nan, np.nan]], equal_nan=True)


@given(seed=st.integers(0, 2**32), offsets=st.lists(st.integers(1, 7), min_size=3, max_size=3))
def test_windows_say_what_the_report_says(seed, offsets):
    """Any client's own split of the rounds: sums of the true columns are the counts, and no others."""
    rng = np.random.default_rng(seed)
    P = (rng.random((8, 3)) < 0.5).astype(np.uint8)
    rows = [
        (k, start, stop, int(P[start:stop, k].sum()))
        for k, cut in enumerate(offsets)
        for start, stop in ((0, cut), (cut, 8))
    ]
    windows = DisaggregationProblem(A, report(*rows)).windows
    assert windows.meet(P.T).all()
    flipped = P.T.copy()
    flipped[:, 4] ^= 1
    assert not windows.meet(flipped).any()
    known = windows.known()
    assert (known[~np.isnan(known)] == P.T[~np.isnan(known)]).all()


def test_nobody_may_be_left():
    """Of clients with windows of their own, as of any others."""
    windows = DisaggregationProblem(A, report((0, 0, 3, 1), (0, 3, 8, 2), (1, 0, 5, 2), (1, 5, 8, 2))).windows
    assert not windows.shared
    nobody = windows.of(np.zeros(0, dtype=np.intp))
    assert nobody.meet(np.zeros((0, 8), dtype=np.uint8)).shape == (0,)
    assert nobody.known().shape == (0, 8)


def test_no_counts_leave_everything_open():
    problem = DisaggregationProblem(planted(0).problem.aggregates, None, num_clients=8)
    assert np.isnan(problem.windows.known()).all()
    assert problem.clients.tolist() == list(range(8))


def test_a_memory_map_is_not_copied(tmp_path):
    path = tmp_path / "aggregates.npy"
    np.save(path, A.astype(np.float32))
    problem = DisaggregationProblem(np.load(path, mmap_mode="r"), windowed_counts(np.ones((8, 2)), 4))
    assert isinstance(problem.aggregates, np.memmap)
