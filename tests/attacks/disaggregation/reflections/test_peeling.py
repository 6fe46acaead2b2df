"""Soft measurements: the projection is the minimiser that the module's docstring states."""

import numpy as np
import pytest

from attacks.disaggregation.instance import Instance
from attacks.disaggregation.reflections.peeling import Peeling
from attacks.disaggregation.space.affine import AffineSpace
from tests.helpers.planted import planted

TOLERANCE = 2e-4
"""Of a projection in single precision."""


def peeling(**options):
    case = planted(0, window=16, **options)  # two windows: six of eight dimensions are left
    instance = Instance.prepare(case.problem, rng=np.random.default_rng(0))
    space = AffineSpace(instance.windows, instance.subspace)
    return case, Peeling(space, instance.expected.astype(np.float32))


def projected(soft, z, clients):
    """(n, rounds) the projections of the rows of z."""
    offsets = soft.space.offsets(clients)
    coordinates = soft.tilted(z @ soft.space.B) + soft.shifts(clients, offsets)
    return offsets + coordinates @ soft.space.B.T


def minimiser(soft, z, client, *, h, weight, target):
    """The p in O + col B with the least ½‖p − z‖² + ½ Σ weight (h·p − target)², by the normal equations."""
    B = soft.space.B.astype(np.float64)
    offset = soft.space.offsets(np.array([client]))[0].astype(np.float64)
    hB = h @ B
    left = np.eye(B.shape[1]) + weight * hB.T @ hB
    right = B.T @ (z - offset) + weight * hB.T @ (target - h @ offset)
    return offset + B @ np.linalg.solve(left, right)


def test_without_measurements_it_is_the_orthogonal_projection():
    case, soft = peeling()
    assert soft.space.cut
    clients, z = np.arange(8), np.random.default_rng(1).random((8, 32), dtype=np.float32)
    B, offsets = soft.space.B, soft.space.offsets(clients)
    np.testing.assert_allclose(projected(soft, z, clients), offsets + (z - offsets) @ B @ B.T, atol=TOLERANCE)
    true = case.participation.T.astype(np.float32)
    np.testing.assert_allclose(projected(soft, true, clients), true, atol=TOLERANCE, err_msg="stays in place")


@pytest.mark.parametrize("weight", [0.05, 0.5])
def test_accepted_columns_are_soft_measurements(weight):
    case, soft = peeling()
    accepted = case.participation.T[:3]
    soft.tilt(accepted, weight)
    z = np.random.default_rng(2).random((8, 32), dtype=np.float32)
    found = projected(soft, z, np.arange(8))
    scaled = weight / (32 * (soft.rate * (1 - soft.rate)) ** 2)
    h = accepted.astype(np.float64)
    for client in range(8):
        target = h @ soft.expected[client]
        expected = minimiser(soft, z[client], client, h=h, weight=scaled, target=target)
        np.testing.assert_allclose(found[client], expected, atol=TOLERANCE)


def test_more_weight_brings_overlaps_nearer_to_what_counts_suggest():
    case, soft = peeling()
    accepted, z = case.participation.T[:3], np.random.default_rng(3).random((8, 32), dtype=np.float32)
    expected = soft.expected @ accepted.T
    off = []
    for weight in (0.0, 0.1, 10.0):
        soft.tilt(accepted, weight)
        off.append(np.abs(projected(soft, z, np.arange(8)) @ accepted.T - expected)[3:].mean())
    assert off[0] > off[1] > off[2]


@pytest.mark.parametrize("options", [{"known": 0.6}, {"count_sd": 0.3}], ids=["missing", "noisy"])
def test_counts_that_do_not_cut_the_space_are_measurements_of_their_own(options):
    """They keep the search away from zero, which is binary and lies in every space."""
    _, soft = peeling(**options)
    assert not soft.space.cut and len(soft.counted)
    clients = np.arange(8)
    start = projected(soft, np.zeros((8, 32), dtype=np.float32), clients)
    assert (start.sum(axis=1) > 0.05 * soft.expected.sum(axis=1)).all()
    h = soft.counted.astype(np.float64)
    for client in clients:
        expected = minimiser(soft, np.zeros(32), client, h=h, weight=1.0, target=soft.counts[client])
        np.testing.assert_allclose(start[client], expected, atol=TOLERANCE)


def test_measurements_can_be_taken_back():
    case, soft = peeling()
    clients, z = np.arange(8), np.random.default_rng(4).random((8, 32), dtype=np.float32)
    before = projected(soft, z, clients)
    soft.tilt(case.participation.T[:4], 0.3)
    assert np.abs(projected(soft, z, clients) - before).max() > 10 * TOLERANCE
    soft.tilt(case.participation.T[:0], 0.0)
    np.testing.assert_array_equal(projected(soft, z, clients), before)
