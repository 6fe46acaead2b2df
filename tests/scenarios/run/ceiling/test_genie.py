"""The genie on planted problems: it finds what the evidence gives, and nothing where there is none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attacks.disaggregation.counts.windows import Windows
from attacks.reconciliation import posed_problem
from scenarios.planted import Planted
from scenarios.run.ceiling.column_changes import ColumnChanges
from scenarios.run.ceiling.genie import genie, shuffled

SMALL: dict[str, Any] = {"seed": 3, "clients": 12, "rounds": 60, "rate": 0.2, "window": 6, "dim": 64}


def asked(settings, participation=None):
    """The shares of participations found and invented; the genie may be told another matrix as the truth."""
    truth, transcript, counts = settings.plant()
    problem = posed_problem(
        transcript.aggregates,
        counts if settings.known else None,
        num_clients=settings.clients,
        cohort_sizes=transcript.cohort_sizes,
        layer_shapes=transcript.layer_shapes,
    )
    P = truth.participation if participation is None else participation
    decided = genie(problem, P, float(P.mean()), exact=False)
    return decided.found.sum() / P.sum(), decided.invented.sum() / P.sum()


@pytest.mark.parametrize("counts", [{}, {"counts_sd": 1.0}, {"known": 0.5}, {"known": 0.0}])
def test_noise_lowers_the_ceiling_whatever_the_counts(counts):
    found, invented = asked(Planted(**SMALL, **counts, noise_sd=0.3))
    assert found > 0.97
    assert invented < 0.03
    assert asked(Planted(**SMALL, **counts, noise_sd=6.0))[0] < 0.6


def test_better_counts_raise_the_ceiling():
    few, all_ = (asked(Planted(**SMALL, noise_sd=1.5, known=known))[0] for known in (0.3, 1.0))
    assert few < all_


def test_a_genie_that_is_told_a_wrong_matrix_finds_no_more_than_a_guess():
    """Its scales are fitted to the matrix that it is told: that alone must not make it find it."""
    settings = Planted(**{**SMALL, "dim": 400}, noise_sd=0.3)
    truth, _, counts = settings.plant()
    windows = Windows.from_report(counts, 60)
    wrong = shuffled(windows, truth.participation, np.random.default_rng(0))
    np.testing.assert_array_equal(windows.sums(wrong.T), windows.count)
    assert asked(settings)[0] == 1
    assert asked(settings, wrong)[0] < (wrong & truth.participation).sum() / wrong.sum()


def test_a_window_without_a_count_offers_no_other_round(monkeypatch):
    """Only "not at all" is an alternative there: another round instead would be two entries at once."""
    settings = Planted(**SMALL, known=0.0, noise_sd=0.3)
    asked_for = []
    moves = ColumnChanges.moves

    def counted(self, client, rounds, left, joined):
        asked_for.append(len(left))
        return moves(self, client, rounds, left, joined)

    monkeypatch.setattr(ColumnChanges, "moves", counted)
    truth, transcript, counts = settings.plant()
    problem = posed_problem(
        transcript.aggregates,
        replace(counts, count=np.full(len(counts.count), np.nan)),
        num_clients=settings.clients,
        cohort_sizes=transcript.cohort_sizes,
        layer_shapes=transcript.layer_shapes,
    )
    genie(problem, truth.participation, 0.2, exact=False)
    assert asked_for
    assert not any(asked_for)
