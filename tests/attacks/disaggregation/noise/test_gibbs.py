"""Gibbs sampling: every step is drawn from the posterior that a direct computation gives."""

import itertools

import numpy as np
import pytest

from attacks.disaggregation.noise.covariance_changes import exchange_gain
from attacks.disaggregation.noise.gibbs import flip_entries, swap_tails
from attacks.disaggregation.noise.gibbs_stretches import swap_stretches
from attacks.disaggregation.noise.round_model import RoundModel, Scales

CLIENTS, ROUNDS, WINDOW = 3, 9, 3
COORDINATES, COHORT_PRECISION = 7.0, 0.5


class Case:
    """A small matrix with its model, and the log-posterior of any other matrix by direct computation."""

    def __init__(self, seed, *, drift=2.0, energies=(1.0, 1.0, 1.0)):
        rng = np.random.default_rng(seed)
        self.P = (rng.random((CLIENTS, ROUNDS)) < 0.4).astype(np.uint8)
        self.sizes = np.maximum(self.P.sum(axis=0) + rng.integers(-1, 2, ROUNDS), 0).astype(float)
        scales = Scales(client=0.4, mean=0.01, drift=drift, course=(-0.3, 0.5, 0.1))
        A = rng.standard_normal((ROUNDS, 30))
        nothing = np.zeros((ROUNDS, CLIENTS))
        self.model = RoundModel(
            A @ A.T / 30, np.zeros((ROUNDS, CLIENTS + 1)), nothing, scales,
            np.array(energies), rng.uniform(0.3, 0.6, ROUNDS), 0.1 * rng.standard_normal((ROUNDS, 1)),
            np.ones(ROUNDS),
        )  # fmt: skip
        self.window = np.broadcast_to(np.arange(ROUNDS) // WINDOW, self.P.shape).astype(np.int64)
        self.count = rng.integers(0, 3, (CLIENTS, ROUNDS // WINDOW + 1)).astype(float)
        self.count[0, 1] = self.count[:, -1] = np.nan
        off = np.arange(ROUNDS + 1) - self.count[:, :, None]
        self.weight = np.nan_to_num(-0.5 * (off / 0.8) ** 2)
        self.odds = rng.normal(-1, 0.3, self.P.shape)
        self.uniform = rng

    def log_posterior(self, P, *, sizes=True):
        known = self.model.given(P.T.astype(float), self.sizes)
        value = -0.5 * COORDINATES * known.misfit() + (P * self.odds).sum()
        ones = np.add.reduceat(P.astype(float), range(0, ROUNDS, WINDOW), axis=1)
        value -= 0.5 * np.nansum(((ones - self.count[:, :-1]) / 0.8) ** 2)
        if sizes:
            value -= 0.5 * COHORT_PRECISION * ((self.sizes - P.sum(axis=0)) ** 2).sum()
        return value

    @property
    def energies(self):
        return self.model.energies[:-1]

    def inverses(self, P):
        model = self.model.given(P.T.astype(float), self.sizes)
        W = np.ascontiguousarray(model.inverse())
        return W, np.ascontiguousarray(W @ model.gram @ W)


@pytest.mark.parametrize("drift", [0.0, 2.0])
def test_a_flip_has_its_posterior_probability(drift):
    case = Case(1, drift=drift, energies=(0.5, 1.0, 1.7))
    kernel = case.model.scales.kernel(ROUNDS)
    kernel = np.ones((ROUNDS, ROUNDS)) if kernel is None else kernel
    for k, r in itertools.product(range(CLIENTS), range(ROUNDS)):
        other = case.P.copy()
        other[k, r] ^= 1
        chance = 1 / (1 + np.exp(case.log_posterior(case.P) - case.log_posterior(other)))
        for draw, flipped in ((chance - 1e-6, True), (chance + 1e-6, False)):
            P, (W, H) = case.P.copy(), case.inverses(case.P)
            missing = case.sizes - P.sum(axis=0)
            uniform = np.full(P.shape, 2.0)  # all other entries stay
            uniform[k, r] = draw
            changed = flip_entries(
                P, W, H, kernel, case.energies, case.window, case.weight, case.odds, missing,
                COHORT_PRECISION, COORDINATES, np.arange(CLIENTS), np.arange(ROUNDS), uniform,
            )  # fmt: skip
            assert changed[r] == changed.sum() == flipped
            np.testing.assert_array_equal(P, other if flipped else case.P)
            for kept, computed in zip((W, H), case.inverses(P), strict=True):
                np.testing.assert_allclose(kept, computed, atol=1e-9)
            np.testing.assert_array_equal(missing, case.sizes - P.sum(axis=0))


def tails(P, one, two):
    """The states after every exchange of tails between two clients, and the one without, in order."""
    differ = np.flatnonzero(P[one] != P[two])
    return [exchanged(P, one, two, cut + 1, ROUNDS) for cut in differ[:-1]] + [P]


def stretches(P, one, two):
    """The same for every stretch of the rounds in which they differ."""
    differ = np.flatnonzero(P[one] != P[two])
    ends = itertools.combinations_with_replacement(differ, 2)
    return [exchanged(P, one, two, first, last + 1) for first, last in ends] + [P]


def exchanged(P, one, two, start, stop):
    other = P.copy()
    other[[one, two], start:stop] = P[[two, one], start:stop]
    return other


@pytest.mark.parametrize("drift", [0.0, 2.0])
@pytest.mark.parametrize(("swap", "of"), [(swap_tails, tails), (swap_stretches, stretches)])
def test_an_exchange_has_its_posterior_probability(swap, of, drift):
    case = Case(2, drift=drift)
    one, two = 0, 2
    states = of(case.P, one, two)
    assert len(states) >= 3
    log = np.array([case.log_posterior(P, sizes=False) for P in states])
    chance = np.exp(log - log.max())
    upper = np.cumsum(chance / chance.sum())
    for state, below, above in zip(states, np.append(0, upper), upper, strict=False):
        P, (W, H) = case.P.copy(), case.inverses(case.P)
        pairs = np.array([[one, two]], dtype=np.int64)
        exchanges = swap(
            P, W, H, case.model.scales.position(ROUNDS), case.energies, case.window, case.weight, case.odds,
            COORDINATES, pairs, np.array([[(below + above) / 2, 0.5]]),
        )  # fmt: skip
        assert exchanges == (state is not case.P)
        np.testing.assert_array_equal(P, state)
        for kept, computed in zip((W, H), case.inverses(P), strict=True):
            np.testing.assert_allclose(kept, computed, atol=1e-9)


@pytest.mark.parametrize(("swap", "of"), [(swap_tails, tails), (swap_stretches, stretches)])
def test_an_exchange_of_unequal_clients_keeps_everything_up_to_date(swap, of):
    case = Case(2, energies=(0.6, 1.0, 1.4))
    position, pairs = case.model.scales.position(ROUNDS), np.array([[0, 2]], dtype=np.int64)
    reached = set()
    for draw in np.linspace(0.001, 0.999, 300):
        P, (W, H) = case.P.copy(), case.inverses(case.P)
        swap(
            P, W, H, position, case.energies, case.window, case.weight, case.odds, COORDINATES, pairs,
            np.array([[draw, 1e-300]]),
        )  # fmt: skip
        reached.add(P.tobytes())
        for kept, computed in zip((W, H), case.inverses(P), strict=True):
            np.testing.assert_allclose(kept, computed, atol=1e-9)
    assert reached <= {state.tobytes() for state in of(case.P, 0, 2)}
    assert len(reached) > 3


def test_the_gain_of_an_exchange_is_that_of_a_direct_computation():
    case = Case(3, energies=(0.5, 1.0, 1.7))
    W, H = case.inverses(case.P)
    rounds = np.flatnonzero(case.P[0] != case.P[2])[1:]
    other = case.P.copy()
    other[:, rounds] = case.P[[2, 1, 0]][:, rounds]
    own = case.energies[0], case.energies[2]
    gain = exchange_gain(
        case.P[0], case.P[2], W, H, case.model.scales.position(ROUNDS), own, rounds, COORDINATES
    )
    misfits = [case.model.given(P.T.astype(float), case.sizes).misfit() for P in (other, case.P)]
    assert gain == pytest.approx(-0.5 * COORDINATES * (misfits[0] - misfits[1]), abs=1e-9)
