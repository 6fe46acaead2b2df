"""Exchanges between two clients: their likelihood by direct computation, and a planted one is undone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.exchanges import Exchanges, exchange, undone
from attacks.disaggregation.noise.round_model import RoundModel, Scales

ROUNDS, CLIENTS, WINDOW, ENTRIES = 48, 6, 6, 400


def windows_of(P, *, sd=0.0):
    index = np.arange(ROUNDS).reshape(1, -1, WINDOW)
    count = P.T.reshape(CLIENTS, -1, WINDOW).sum(axis=2).astype(float)
    return Windows(ROUNDS, index, count, np.full(count.shape, sd), np.zeros(count.shape, dtype=bool), {})


def planted(seed, *, drift=3.0):
    """A participation matrix (rounds, clients), and the model of sums whose updates drift."""
    rng = np.random.default_rng(seed)
    P = (rng.random((ROUNDS, CLIENTS)) < 0.35).astype(np.float64)
    scales = Scales(client=1.0, mean=1e-6, drift=drift)
    root = np.linalg.cholesky(scales.kernel(ROUNDS) + 1e-9 * np.eye(ROUNDS))
    updates = np.einsum("rs,skd->rkd", root, rng.standard_normal((ROUNDS, CLIENTS, ENTRIES)))
    sums = np.einsum("rk,rkd->rd", P, updates) + 0.3 * rng.standard_normal((ROUNDS, ENTRIES))
    model = RoundModel(
        gram=sums @ sums.T / ENTRIES,
        design=np.column_stack((P, P.sum(axis=1))),
        variance=np.zeros(P.shape),
        scales=scales,
        relative_energy=rng.uniform(0.8, 1.2, CLIENTS),
        noise=np.full(ROUNDS, 0.1),
        shared=np.zeros((ROUNDS, 1)),
        level=np.ones(ROUNDS),
    )
    return P, model


def all_pairs():
    return np.array(list(itertools.combinations(range(CLIENTS), 2)))


def exchanged(P, first, second, rounds):
    other = P.copy()
    other[np.ix_(rounds, [first, second])] = P[np.ix_(rounds, [second, first])]
    return other


def count_odds(windows, P, other):
    """The change of the log-likelihood of noisy counts."""
    before, after = (windows.sums(M.T.astype(np.uint8)) - windows.count for M in (P, other))
    return float((0.5 * (before**2 - after**2) / windows.sd**2).sum())


@pytest.mark.parametrize("sd", [0.0, 0.8])
def test_the_best_exchange_gains_what_a_direct_computation_says(sd):
    P, model = planted(1)
    windows, seen = windows_of(P, sd=sd), 0
    pairs = all_pairs()
    best = Exchanges(model, windows, coordinates=5.0).among(pairs)
    for pair, stretch, gain, odds in zip(pairs, *best, strict=True):
        if gain == -np.inf:
            assert odds == -np.inf
            continue
        assert odds >= gain
        other = P.copy()
        exchange(other, pair, stretch)
        if np.ptp(stretch) == int((P[:, pair[0]] != P[:, pair[1]]).sum()):
            expected = 0.0  # only names are exchanged
        else:
            expected = 2.5 * (model.misfit() - model.given(other, P.sum(axis=1)).misfit())
            seen += 1
        if sd:
            expected += count_odds(windows, P, other)
        else:
            np.testing.assert_array_equal(windows.sums(other.T.astype(np.uint8)), windows.count)
        assert gain == pytest.approx(expected, abs=1e-8)
    assert seen


def tails(P, windows):
    """Pairs of clients and rounds from which on they can be exchanged without touching a count."""
    for first, second in itertools.combinations(range(CLIENTS), 2):
        for start in range(WINDOW, ROUNDS - WINDOW):
            rounds = np.arange(start, ROUNDS)
            other = exchanged(P, first, second, rounds)
            same_counts = np.array_equal(windows.sums(other.T.astype(np.uint8)), windows.count)
            if same_counts and (other != P).any() and (P[:start, first] != P[:start, second]).any():
                yield other


def test_clients_that_took_each_others_place_are_put_right():
    put_right = 0
    for seed in range(4):
        P, model = planted(seed)
        windows = windows_of(P)
        for other in itertools.islice(tails(P, windows), 3):
            wrong = model.given(other, P.sum(axis=1))
            columns, odds = undone(replace(wrong, relative_energy=np.ones(CLIENTS)), windows, P.sum(axis=1))
            np.testing.assert_array_equal(columns, P.T)
            assert (odds < 0).all()
            put_right += 1
    assert put_right


def test_pairs_judged_in_blocks_are_judged_as_together(monkeypatch):
    P, model = planted(2)
    exchanges, pairs = Exchanges(model, windows_of(P, sd=0.8), coordinates=5.0), all_pairs()
    together = exchanges.among(pairs)
    two_clients = 2 * 4 * ROUNDS**2
    monkeypatch.setattr("attacks.disaggregation.noise.exchanges.BLOCK_ENTRIES", two_clients)
    for one, other in zip(together, exchanges.among(pairs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
