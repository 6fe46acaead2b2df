"""Outcomes revised by everything that a client can have, and by what other clients got."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation.columns.enumeration import Enumeration
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.settling import Verdict, settle_by_enumeration, settle_duplicates
from attacks.disaggregation.recovery import Outcome
from tests.helpers.planted import planted


def prepared(case, *, sizes=False):
    problem = replace(case.problem, cohort_sizes=case.participation.sum(axis=1)) if sizes else case.problem
    return Instance.prepare(problem, rng=np.random.default_rng(0))


def consistent(clients, confidence=0.99):
    """A verdict that believes every client's column, without a proof."""
    return Verdict(
        np.full(clients, Outcome.CONSISTENT, dtype="<U10"),
        np.full(clients, confidence),
        np.full(clients, "", dtype=object),
    )


def test_a_later_word_overrules_an_earlier_one():
    verdict = consistent(3)
    verdict.give(np.array([0, 2]), Outcome.UNRESOLVED, 0.25, "because")
    assert verdict.outcome.tolist() == ["unresolved", "consistent", "unresolved"]
    assert verdict.confidence.tolist() == [0.25, 0.99, 0.25]
    assert verdict.reason.tolist() == ["because", "", "because"]


@pytest.mark.parametrize("sizes", [False, True])
def test_the_only_possible_column_is_proved_and_one_of_several_is_not(sizes):
    """With few rounds some clients have one possible column and others have many."""
    alone = several = 0
    for seed in range(6):
        case = planted(seed, clients=6, rounds=9, rate=0.4, window=3)
        instance, columns, verdict = prepared(case, sizes=sizes), case.participation.T.copy(), consistent(6)
        settle_by_enumeration(instance, columns, verdict)
        enumeration = Enumeration(instance)
        for client in range(6):
            number = len(enumeration.columns(client))
            if number == 1 and instance.holds_all_columns:
                assert verdict.outcome[client] == Outcome.PROVED
                alone += 1
            elif number > 1 and not sizes:
                assert verdict.outcome[client] != Outcome.PROVED
                assert verdict.confidence[client] == pytest.approx(1 / number)
                assert f"{number} columns meet every constraint" in verdict.reason[client]
                assert (verdict.outcome[client] == Outcome.UNRESOLVED) == (number > 2)
                several += 1
    assert alone and (several or sizes)


def test_an_equally_likely_column_of_the_solver_stays():
    case = planted(0, clients=6, rounds=9, rate=0.4, window=3)
    instance, columns = prepared(case), case.participation.T.copy()
    settle_by_enumeration(instance, columns, consistent(6))
    np.testing.assert_array_equal(columns, case.participation.T)


def test_a_column_that_cannot_be_is_replaced():
    case = planted(0, clients=6, rounds=9, rate=0.4, window=3)
    instance, columns = prepared(case), case.participation.T.copy()
    client = next(k for k in range(6) if len(Enumeration(instance).columns(k)) == 1)
    columns[client] = 1 - columns[client]
    settle_by_enumeration(instance, columns, consistent(6))
    np.testing.assert_array_equal(columns[client], case.participation[:, client])


def test_proofs_are_left_alone():
    case = planted(1, clients=6, rounds=9, rate=0.4, window=9)
    verdict = consistent(6)
    verdict.give(np.arange(6), Outcome.PROVED, 1.0)
    settle_by_enumeration(prepared(case), case.participation.T.copy(), verdict)
    assert (verdict.outcome == Outcome.PROVED).all() and (verdict.confidence == 1).all()


def duplicated(*, together, noise_sd=0.0):
    """Clients 2 and 5 ended with one column; in truth they are always `together`, or not."""
    P = planted(2).participation.copy()
    if together:
        P[:, 5] = P[:, 2]
    case = planted(2, participation=P, noise_sd=noise_sd, dim=40 if noise_sd else None)
    columns = P.T.copy()
    columns[5] = columns[2]
    verdict = consistent(8)
    settle_duplicates(prepared(case), columns, verdict)
    others = np.isin(np.arange(8), (2, 5), invert=True)
    assert (verdict.outcome[others] == Outcome.CONSISTENT).all()
    assert (verdict.confidence[others] == 0.99).all() and not any(verdict.reason[others])
    return verdict.outcome[[2, 5]], verdict.confidence[[2, 5]], verdict.reason[[2, 5]]


def test_a_group_that_the_rank_allows_is_kept():
    outcome, confidence, reason = duplicated(together=True)
    assert (outcome == Outcome.CONSISTENT).all() and (confidence == 0.99).all()
    assert all(text.startswith("always together: clients 2, 5") for text in reason)


def test_a_column_that_only_one_can_have_is_nobodys():
    outcome, confidence, reason = duplicated(together=False)
    assert (outcome == Outcome.UNRESOLVED).all() and (confidence == 0.5).all()
    assert all("it can be only one's" in text for text in reason)


def test_noise_hides_which_of_the_two_it_is():
    outcome, confidence, reason = duplicated(together=False, noise_sd=1.0)
    assert (outcome == Outcome.CONSISTENT).all() and (confidence == 0.99 / 2).all()
    assert all("always together, or only one's" in text for text in reason)
