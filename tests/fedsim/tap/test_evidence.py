"""The evidence in sums: closed forms against direct computation, and similarity against known variances."""

import numpy as np
import pytest

from fedsim.tap.exposure.evidence import EXACT, Signal, Windows, clear, flip_divergence, given_away
from fedsim.tap.exposure.forecast import Participation, forecast, repeats_soon
from fedsim.tap.exposure.similarity import Similarity


def drawn(seed, rounds, clients, rate=0.4):
    return (np.random.default_rng(seed).random((rounds, clients)) < rate).astype(np.uint8)


def covariance(P, ratio):
    P = P.astype(float)
    return ratio * P @ P.T


@pytest.mark.parametrize("ratio", [0.05, 1.0, 40.0])
def test_the_divergence_of_a_change_is_that_of_two_normals(ratio):
    P = drawn(1, 9, 5)
    P[:, 0] = 1  # no empty round
    noise = np.diag(P.sum(axis=1).astype(float))
    found = flip_divergence(P, ratio)
    before = covariance(P, ratio) + noise
    for t in range(9):
        for k in range(5):
            other = P.copy()
            other[t, k] ^= 1
            after = covariance(other, ratio) + noise  # the noise of a round is known
            eigenvalues = np.linalg.eigvals(np.linalg.solve(after, before)).real
            expected = 0.5 * (eigenvalues - 1 - np.log(eigenvalues)).sum()
            assert found[t, k] == pytest.approx(expected, rel=1e-6)


def test_more_directions_and_more_signal_make_columns_clear():
    P = drawn(2, 30, 8)
    windows = Windows(tuple(range(6, 31, 6)))
    numbers = [clear(P, windows, Signal(ratio, 20.0)).sum() for ratio in (0.0, 0.1, 1.0, 100.0)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert numbers[-1] == 8


def test_noise_free_sums_are_clear_once_there_are_more_rounds_than_clients():
    P = drawn(3, 40, 8)
    assert clear(P, Windows(), Signal(EXACT, 7.0)).all()


def test_counts_give_away_empty_and_full_windows():
    P = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]], dtype=np.uint8)
    np.testing.assert_array_equal(given_away(P, Windows((2, 4))), [True, False, False, False])
    assert not given_away(P, Windows()).any()
    np.testing.assert_array_equal(given_away(P, Windows((2,))), [True, False, False, False])


def test_the_rank_grows_with_every_independent_round():
    participation = Participation()
    P = drawn(4, 60, 23, 0.2)
    P[7] = P[3]
    for number, row in enumerate(P):
        participation.add((np.flatnonzero(row) + 1000).tolist())
        assert participation.rank == np.linalg.matrix_rank(P[: number + 1].astype(float))
    assert participation.clients == 23
    assert participation.matrix.sum() == P.sum()


def test_nobody_is_forecast_before_there_are_enough_rounds():
    participation = Participation()
    for row in drawn(5, 12, 40, 0.2):
        participation.add(np.flatnonzero(row).tolist())
    assert not repeats_soon(participation, 10)
    found = forecast(participation, Windows((6, 12)), Signal(), 10)
    assert found.expected == 0
    assert "taken for equal" in found.rests_on()
    for row in drawn(6, 25, 40, 0.2):
        participation.add(np.flatnonzero(row).tolist())
    assert repeats_soon(participation, 10)
    assert forecast(participation, Windows((6, 12)), Signal(), 10).expected > 20


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_similarity_measures_signal_and_noise(noise):
    """Ratio times directions is the whitened energy that a client's updates share: here entries / noise²."""
    rng = np.random.default_rng(7)
    shared, similarity = rng.standard_normal((12, 200)), Similarity()
    for _ in range(60):
        chosen = rng.permutation(12)[:5]
        similarity.add(
            {k: similarity.sampled(shared[k] + noise * rng.standard_normal(200)) for k in chosen.tolist()}
        )
    found = similarity.signal()
    assert found.measured
    assert found.ratio * found.directions == pytest.approx(200 / noise**2, rel=0.35)


def test_equal_updates_are_exact_and_single_ones_are_unknown():
    similarity, updates = Similarity(), np.random.default_rng(8).standard_normal((5, 30))
    assert similarity.signal().exact
    similarity.add({k: similarity.sampled(updates[k]) for k in range(5)})
    assert not similarity.signal().measured
    assert not similarity.signal().ratio
    similarity.add({k: similarity.sampled(updates[k]) for k in range(5)})
    similarity.add({k: similarity.sampled(updates[k]) for k in range(5)})
    assert similarity.signal().exact
