"""The ceiling beside an attack."""

from typing import Any

import numpy as np
import pytest

import scenarios.run.ceiling.ceiling as module
from scenarios.planted import Planted

BRIEF = {"name": "message_passing", "outliers": (2.0,), "repairs": 0, "iterations": 5}
"""An attack that hardly tries: what it finds does not matter here."""
NOISY: dict[str, Any] = {
    "seed": 3,
    "clients": 12,
    "rounds": 60,
    "rate": 0.2,
    "window": 6,
    "dim": 64,
    "noise_sd": 2.0,
}
NOISY |= {"solver": BRIEF}


def test_the_ceiling_is_no_lower_than_attack_and_guess():
    for noise in (0.3, 1.0, 2.0, 8.0):
        found = Planted(**{**NOISY, "noise_sd": noise}).run().disaggregation
        best, base = found.ceiling, found.baselines
        assert best.ones_found >= max(found.ones_found, base.counts_only_ones_found)
        assert best.exact_fraction >= max(found.exact_fraction, base.counts_only_exact_fraction)
        assert best.singled_out_fraction >= found.singled_out_fraction


def test_an_attack_that_finds_everything_is_its_own_ceiling():
    found = Planted(seed=3, clients=12, rounds=60, rate=0.2, window=6).run().disaggregation
    assert found.ones_found == found.ones_precision == 1
    assert (found.ceiling.ones_found, found.ceiling.unique_fraction) == (1, 1)
    assert found.ceiling.basis == module.ATTACK


def test_too_much_work_is_said(monkeypatch):
    monkeypatch.setattr(module, "MOST_FLOPS", 1.0)
    ceiling = Planted(**NOISY).run().disaggregation.ceiling
    assert (ceiling.ones_found, ceiling.exact_fraction) == (None, None)
    assert ceiling.basis == module.TOO_LARGE


def test_three_rounds_fit_any_matrix_and_have_no_ceiling():
    ceiling = Planted(**{**NOISY, "clients": 24, "rounds": 3}).run().disaggregation.ceiling
    assert (ceiling.ones_found, ceiling.basis) == (None, module.TOO_FEW_ROUNDS)


def test_fewer_rounds_than_clients_are_no_protection_if_updates_differ():
    """Sums with common participants are alike. No attack here uses that, and the ceiling shows it."""
    found = Planted(seed=3, clients=40, rounds=30, rate=0.15, window=10, dim=2000).run().disaggregation
    assert found.ones_found < 0.5
    assert found.ceiling.ones_found == pytest.approx(1)
    assert found.ceiling.unique_fraction is None


def test_a_figure_is_the_share_that_it_says():
    found = Planted(**NOISY)
    truth, recovery = found.solve()
    P, ones = truth.participation == 1, recovery.participation == 1
    result = found.run().disaggregation
    assert result.ones_found == (P & ones).sum() / P.sum()
    assert result.ones_precision == (P & ones).sum() / ones.sum()
    assert np.isclose(result.baselines.counts_only_ones_found, _by_chance(P))


def _by_chance(P):
    """A window of six rounds with c ones: each of them is found with a chance of c/6."""
    counts = P.reshape(10, 6, 12).sum(axis=1)
    return (counts**2 / 6).sum() / counts.sum()
