"""Counts over intervals: disjoint windows by subtraction, and contradictions between counts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.disaggregation.counts.intervals import Row, WindowsError, disjoint_rows

ROUNDS = 6


def exact(*spans):
    return [Row(start, stop, count, 0.0) for start, stop, count in spans]


def columns_with(rows):
    """All columns of ROUNDS entries that have the exact counts of the rows."""
    every = np.array(np.meshgrid(*[[0, 1]] * ROUNDS)).reshape(ROUNDS, -1).T
    fits = [every[:, row.start : row.stop].sum(axis=1) == row.count for row in rows]
    return {tuple(column) for column in every[np.all(fits, axis=0)].tolist()}


spans = st.tuples(st.integers(0, ROUNDS - 1), st.integers(1, ROUNDS)).filter(lambda span: span[0] < span[1])
spans_and_counts = st.lists(st.tuples(spans, st.integers(0, ROUNDS)), min_size=1, max_size=5).map(
    lambda rows: exact(*((*span, min(count, span[1] - span[0])) for span, count in rows))
)


def test_readings_of_a_counter_become_windows():
    disjoint, rest = disjoint_rows(exact((0, 2, 1), (0, 4, 2), (0, 6, 2)), "a")
    assert disjoint == exact((0, 2, 1), (2, 4, 1), (4, 6, 0))
    assert rest == []


def test_each_difference_of_noisy_readings_has_the_errors_of_two_readings():
    readings = [Row(0, stop, 0.5 * stop, 1.0) for stop in (2, 4, 6)]
    disjoint, _ = disjoint_rows(readings, "a")
    assert [row.sd for row in disjoint] == pytest.approx([1.0, np.sqrt(2), np.sqrt(2)])


def test_an_inner_window_leaves_the_outer_ones_to_both_sides():
    disjoint, rest = disjoint_rows(exact((0, 6, 3), (0, 4, 2), (2, 4, 1)), "a")
    assert disjoint == exact((0, 2, 1), (2, 4, 1), (4, 6, 1))
    assert rest == []


def test_equal_windows_with_equal_errors_are_averaged():
    disjoint, rest = disjoint_rows([Row(0, 6, 2.0, 1.0), Row(0, 6, 3.0, 1.0)], "a")
    assert rest == []
    (row,) = disjoint
    assert (row.start, row.stop, row.count) == (0, 6, 2.5)
    assert row.sd == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize("order", [1, -1])
def test_of_equal_windows_the_more_exact_one_stays(order):
    rows = [Row(0, 6, 2.0, 0.5), Row(0, 6, 3.0, 2.0)]
    assert disjoint_rows(rows[::order], "a")[0] == [Row(0, 6, 2.0, 0.5)]


def test_overlapping_windows_remain_as_constraints():
    disjoint, rest = disjoint_rows(exact((0, 4, 2), (2, 6, 2)), "a")
    assert disjoint == exact((0, 4, 2))
    assert rest == exact((2, 6, 2))


def test_a_contradiction_names_the_client_and_the_counts():
    with pytest.raises(WindowsError, match=r"client a: counts contradict each other \(rounds 0\.\.1: 2, "):
        disjoint_rows(exact((0, 2, 2), (0, 4, 1)), "a")


def test_more_participations_than_rounds_are_a_contradiction():
    with pytest.raises(WindowsError):
        disjoint_rows(exact((0, 2, 3)), "a")


def test_noisy_counts_never_contradict():
    rows = [Row(0, 2, 2.0, 0.1), Row(0, 4, 1.0, 0.1)]
    assert [row.count for row in disjoint_rows(rows, "a")[0]] == [2.0, -1.0]


@given(spans_and_counts)
def test_exact_counts_contradict_each_other_if_and_only_if_no_column_has_them(rows):
    if columns_with(rows):
        disjoint_rows(rows, "a")
    else:
        with pytest.raises(WindowsError):
            disjoint_rows(rows, "a")


@given(st.lists(spans, min_size=1, max_size=6), st.lists(st.integers(0, 1), min_size=ROUNDS, max_size=ROUNDS))
def test_disjoint_rows_allow_the_same_columns(some_spans, column):
    rows = exact(*((start, stop, sum(column[start:stop])) for start, stop in some_spans))
    disjoint, rest = disjoint_rows(rows, "a")
    assert all(before.stop <= after.start for before, after in pairwise(disjoint))
    assert columns_with(disjoint + rest) == columns_with(rows)
