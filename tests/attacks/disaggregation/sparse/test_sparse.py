"""Columns and authors from zero rows, on planted words."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from attacks.disaggregation import disaggregate
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.sparse import authors
from attacks.disaggregation.sparse.authors import authorship
from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.holders import Holders
from attacks.disaggregation.sparse.matching import pair_marginals, without_exchange
from attacks.disaggregation.sparse.naming import Fits
from attacks.disaggregation.sparse.peeling import peeled
from attacks.disaggregation.sparse.search import Search
from attacks.disaggregation.sparse.traces import Traces, find_traces
from attacks.disaggregation.sparse.unions import cover, union_of_parts
from tests.helpers.planted import planted
from tests.helpers.words import planted_words


def solve(problem, solver="sparse"):
    return disaggregate(problem, solver, rng=np.random.default_rng(0))


def exact(recovery, case):
    return (recovery.participation == case.participation).all(axis=0)


@pytest.mark.parametrize("solver", ["sparse", "auto"])
def test_fewer_rounds_than_clients_suffice_while_the_model_moves(solver):
    case = planted_words(1, clients=60, rounds=50, words=800)
    recovery = solve(case.problem, solver)
    right = exact(recovery, case)
    assert recovery.solver == "sparse" and right.mean() > 0.9
    assert right[recovery.confidence > 0.95].all()


@pytest.mark.parametrize(("kind", "least"), [({"lost": 0.2}, 0.7), ({"known": 0.7}, 0.7)])
def test_lost_updates_and_missing_counts_cost_little(kind, least):
    case = planted_words(2, clients=40, rounds=80, words=600, **kind)
    recovery = solve(case.problem)
    right = exact(recovery, case)
    assert right.mean() > least
    claimed = recovery.confidence[recovery.outcome != Outcome.UNRESOLVED]
    assert right.sum() > claimed.sum() - 4, "expected and right columns agree"


def test_likely_columns_say_what_they_rest_on():
    case = planted_words(1, clients=60, rounds=50, words=800)
    recovery = solve(case.problem)
    traces = find_traces(case.problem)
    likely = np.flatnonzero(recovery.outcome == Outcome.LIKELY)
    own = (traces.patterns[traces.pattern_of][:, :, None] == case.participation).all(axis=1).sum(axis=0)
    for client in likely[exact(recovery, case)[likely]]:
        shared = "have in common" in recovery.reason[client]
        assert shared == (own[client] == 0)
        assert shared or recovery.reason[client].endswith(f": {own[client]}")


def test_noise_takes_the_zeros_away():
    case = planted_words(3, noise=1e-3)
    assert find_traces(case.problem) is None
    recovery = solve(case.problem)
    assert (recovery.outcome == Outcome.UNRESOLVED).all() and "stands still" in recovery.reason[0]


def test_sums_of_images_have_no_traces():
    assert find_traces(planted(1, clients=8, rounds=64).problem) is None


def test_words_find_their_authors():
    case = planted_words(4, clients=40, rounds=60, words=600)
    recovery = solve(case.problem)
    right = exact(recovery, case) & (recovery.outcome != Outcome.UNRESOLVED)
    assert recovery.rows is not None and right.mean() > 0.8
    few = (case.typed.sum(axis=0) <= 5) & case.typed.any(axis=0)
    claimed, true = recovery.rows[right][:, few] >= 0.5, case.typed[right][:, few]
    assert (claimed & true).sum() >= 0.97 * claimed.sum()
    assert (claimed & true).sum() >= 0.97 * true.sum()


def test_rows_of_updates_are_those_of_the_authors():
    case = planted_words(5, clients=20, rounds=60, words=300, drift=0.0)
    recovery = solve(case.problem)
    assert exact(recovery, case).all()
    words = case.typed.shape[1]
    moved = recovery.updates[:, : words * 3].reshape(20, words, 3).any(axis=2)
    few = case.typed.sum(axis=0) <= 4
    assert (moved == case.typed)[:, few].mean() > 0.99


def test_a_union_is_explained_by_its_parts():
    patterns = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 1], [1, 1, 1, 0]], dtype=bool)
    np.testing.assert_array_equal(union_of_parts(patterns[2:3], patterns), patterns[2:3])
    np.testing.assert_array_equal(union_of_parts(patterns[3:], patterns), [[0, 1, 0, 0]])
    np.testing.assert_array_equal(cover(patterns[2:3], patterns), [[2, 2, 0, 2]])


def test_a_needed_author_is_certain_and_a_contradicted_one_impossible():
    columns = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool)
    traces = Traces.of(np.array([[1, 1, 1, 0]], dtype=bool))
    found = authorship(traces, columns).toarray()
    assert found[0].tolist() == [1.0, 1.0, 0.0]
    assert (authorship(traces, columns, missing=3).toarray()[0] < 1).all()


@pytest.mark.parametrize("missing", [0, 3])
def test_rows_are_judged_alike_in_blocks_of_any_size(missing, monkeypatch):
    case = planted_words(7, clients=40, rounds=60, words=300)
    columns = case.participation.copy()
    columns[:, :missing] = False
    traces = Traces.of(case.typed.T.astype(int) @ case.participation.T.astype(int) > 0)
    at_once = authorship(traces, columns, missing=missing)
    monkeypatch.setattr(authors, "ENTRIES_AT_A_TIME", 7)
    np.testing.assert_array_equal(authorship(traces, columns, missing=missing).toarray(), at_once.toarray())
    moved_alone = at_once.toarray()[traces.pattern_of] * ~case.typed.T
    assert (moved_alone < 1).all(), "only authors are certain"


def test_a_union_whose_parts_are_found_later_is_no_column():
    case = planted_words(20, clients=80, rounds=60, words=1500, rate=0.08, window=10, lost=0.33)
    problem, traces = case.problem, find_traces(case.problem)
    assert traces is not None and problem.cohort_sizes is not None
    holders = Holders(traces.patterns[traces.varying], traces.support[traces.varying])
    search = Search(holders, CountModel(problem.windows, problem.lost, problem.cohort_sizes))
    search.run()
    true = {row.tobytes() for row in np.packbits(case.participation.T, axis=1)}
    assert len(search.columns) > 70
    assert all(row.tobytes() in true for row in np.packbits(search.columns, axis=1))


def test_names_are_those_that_are_expected_to_be_right_most_often():
    """Client 0 has column 1 more often than column 0; client 1 then gets the best of the rest."""
    fits = Fits(2, 3, np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 0, 2]), np.zeros(5))
    chance = np.array([0.4, 0.6, 0.4, 0.3, 0.3])
    assert fits.named(chance).tolist() == [1, 0]


def test_a_client_without_a_row_of_its_own_is_peeled_out():
    """Client 1 shares its only row with client 0: the rest of the union, and the counts, give its column."""
    case = planted_words(6, clients=2, rounds=20, rate=0.3)
    P = case.participation.T
    union = (P[0] | P[1])[None]
    found = peeled(union, P[:1], case.problem.windows, np.array([1]))
    overlap = (P[0] & P[1]).any()
    assert overlap or (found.columns == P[1]).all(axis=1).any()
    assert all(case.problem.windows.of(np.array([1])).meet(c[None].astype(np.uint8)) for c in found.columns)


def test_rows_of_one_client_have_its_column_in_common():
    """Three rows of client 0, each with another author: nobody has a row of its own."""
    rng = np.random.default_rng(0)
    P = rng.random((4, 200)) < 0.05
    holders = Holders(P[:1] | P[1:], np.ones(3, dtype=np.int64))
    np.testing.assert_array_equal(holders.in_common(np.flatnonzero(P[0])), P[0])
    with_one_more = P[0] | (np.arange(200) == np.flatnonzero(~P.any(axis=0))[0])
    np.testing.assert_array_equal(holders.in_common(np.flatnonzero(with_one_more)), P[0])


def test_matchings_have_the_marginals_of_an_enumeration():
    """A chain: client 0 may have column 0, client 1 either. Everything may stay alone, with weight .5."""
    left, right, weight = np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([3.0, 2.0, 5.0])
    total = 0.5**4 + 0.25 * weight.sum() + weight[0] * weight[2]
    true = np.array([0.25 * 3 + 15, 0.25 * 2, 0.25 * 5 + 15]) / total
    np.testing.assert_allclose(
        pair_marginals(left, right, weight, np.full(2, 0.5), np.full(2, 0.5)), true, rtol=1e-3
    )
    both = csr_matrix(np.array([[3.0, 1.0], [2.0, 5.0]]))
    np.testing.assert_allclose(without_exchange(both, np.array([0, 1])), 15 / 17)


def test_confidence_is_what_it_says_if_a_third_is_lost():
    claimed, right = 0.0, 0
    for seed in range(3):
        case = planted_words(20 + seed, clients=60, rounds=120, words=1500, rate=0.1, window=10, lost=0.33)
        recovery = solve(case.problem)
        resolved = recovery.outcome != Outcome.UNRESOLVED
        claimed += recovery.confidence[resolved].sum()
        right += int(exact(recovery, case)[resolved].sum())
    assert right > 30
    assert abs(claimed - right) < 3 * np.sqrt(right)
