"""Certificates of uniqueness, against every binary column of hand-sized problems."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.certificate import unique
from attacks.disaggregation.workers import Threads
from tests.helpers.planted import planted


def prepared(case):
    return Instance.prepare(case.problem, rng=np.random.default_rng(0))


def certified(instance, case):
    clients = np.arange(instance.num_columns)
    return unique(instance, case.participation.T.copy(), clients, Threads(number=1))


def alternatives(case, client):
    """Binary columns in the space of the true P that have the client's counts, its own one included."""
    P = case.participation.astype(float)
    every = np.array(list(product((0, 1), repeat=len(P))), dtype=np.uint8)
    outside = every - every @ P @ np.linalg.pinv(P)
    inside = every[np.abs(outside).max(axis=1) < 1e-6]
    return int(case.problem.windows.of(np.full(len(inside), client)).meet(inside).sum())


@pytest.mark.parametrize("window", [2, 3, 5])
def test_a_certificate_is_never_given_to_one_of_several_columns(window):
    given = 0
    for seed in range(12):
        case = planted(seed, clients=6, rounds=11, rate=0.4, window=window)
        proved = np.flatnonzero(certified(prepared(case), case))
        assert all(alternatives(case, client) == 1 for client in proved), seed
        given += len(proved)
    assert given > 10


def test_counts_that_fix_every_entry_are_a_certificate():
    case = planted(0, window=1)
    assert certified(prepared(case), case).all()


def test_two_clients_that_can_exchange_their_columns_have_none():
    """Disjoint columns with the same counts in every window: each client can have either."""
    P = planted(1, clients=6, rounds=12, rate=0.4).participation.copy()
    P[:, 0], P[:, 1] = [1, 0] * 6, [0, 1] * 6
    case = planted(1, participation=P, window=4)
    assert alternatives(case, 0) > 1
    assert not certified(prepared(case), case)[:2].any()


def test_a_space_that_is_known_poorly_proves_nothing():
    """The margin has to exceed the tilt of the space, however convincing the signs are."""
    case = planted(2, rounds=64)
    instance = prepared(case)
    tilted = replace(instance, subspace=replace(instance.subspace, angle=0.1))
    assert certified(instance, case).all()
    assert not certified(tilted, case).any()


def test_a_certificate_does_not_depend_on_the_other_clients():
    case = planted(3, clients=6, rounds=11, rate=0.4, window=5)
    instance, columns = prepared(case), case.participation.T.copy()
    together = certified(instance, case)
    for client in range(6):
        alone = unique(instance, columns[[client]], np.array([client]), Threads(number=1))
        assert alone.tolist() == [together[client]]


def test_nobody_asked_is_nobody_proved():
    case = planted(4)
    none = np.zeros(0, dtype=np.intp)
    assert unique(prepared(case), case.participation.T[none], none, Threads(number=1)).shape == (0,)
