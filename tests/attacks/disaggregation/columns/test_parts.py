"""Taking columns apart, and choosing independent ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.disaggregation.columns.attribution import COINCIDENCE
from attacks.disaggregation.columns.parts import independent, shortest_first, taken_apart

columns = st.lists(st.lists(st.integers(0, 1), min_size=7, max_size=7), min_size=1, max_size=8).map(
    lambda rows: np.array(rows, dtype=np.uint8)
)


def as_set(rows):
    return {tuple(row) for row in rows.tolist()}


def test_a_sum_is_replaced_by_the_part_that_is_missing():
    a, b = np.array([1, 1, 0, 0, 0], np.uint8), np.array([0, 0, 1, 0, 1], np.uint8)
    assert as_set(taken_apart(np.stack([a + b, a]))) == as_set(np.stack([a, b]))


def test_a_short_column_may_lie_within_a_long_one_by_chance():
    rng = np.random.default_rng(22)
    long = (rng.permutation(96) < 30).astype(np.uint8)
    short, part = (long * (np.cumsum(long) <= ones) for ones in (6, 14))
    others = (rng.random((22, 96)) < 0.2).astype(np.uint8)
    kept, reduced = (
        taken_apart(np.stack([long, inner, *others]), coincidence=COINCIDENCE) for inner in (short, part)
    )
    assert (kept == long).all(axis=1).any()
    assert (reduced == long - part).all(axis=1).any() and not (reduced == long).all(axis=1).any()


def test_with_noise_nearly_all_of_a_part_is_enough():
    part = np.repeat([1, 0], [10, 20]).astype(np.uint8)
    whole = np.repeat([0, 1, 0], [1, 20, 9]).astype(np.uint8)  # nine of the ten ones
    assert as_set(taken_apart(np.stack([part, whole]))) == as_set(np.stack([part, whole]))
    rest = np.repeat([0, 1, 0], [10, 11, 9]).astype(np.uint8)
    assert as_set(taken_apart(np.stack([part, whole]), slack=0.1)) == as_set(np.stack([part, rest]))


@given(columns)
def test_no_column_contains_another_and_the_span_stays(rows):
    apart = taken_apart(rows).astype(np.int64)
    overlap = apart @ apart.T
    np.fill_diagonal(overlap, -1)
    assert not (overlap == apart.sum(axis=1)).any()
    together = np.concatenate((rows, apart))
    ranks = [np.linalg.matrix_rank(m) if m.size else 0 for m in (rows, apart, together)]
    assert ranks[0] == ranks[1] == ranks[2]


@given(columns)
def test_independent_rows_are_a_basis_with_the_fewest_ones(rows):
    vectors = rows.astype(np.float64)
    kept = independent(vectors, shortest_first(rows), tolerance=1e-9)
    rank = np.linalg.matrix_rank(vectors)
    assert len(kept) == rank == (np.linalg.matrix_rank(vectors[kept]) if kept else 0)
    # Longer rows never help: every dropped row depends on kept ones that are no longer.
    for dropped in set(range(len(rows))) - set(kept):
        no_longer = [i for i in kept if rows[i].sum() <= rows[dropped].sum()]
        before = np.linalg.matrix_rank(vectors[no_longer]) if no_longer else 0
        assert np.linalg.matrix_rank(vectors[[*no_longer, dropped]]) == before


@pytest.mark.parametrize(("tolerance", "kept"), [(0.1, [0, 1]), (0.5, [0])])
def test_rows_within_the_tolerance_of_the_span_are_dependent(tolerance, kept):
    vectors = np.array([[1.0, 0.0], [1.0, 0.3]])
    assert independent(vectors, np.arange(2), tolerance=tolerance) == kept
