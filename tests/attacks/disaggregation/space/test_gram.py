"""Gram matrices of aggregates, and their corrections."""

import numpy as np
import pytest

from attacks.disaggregation.space.flips import flip_costs, unit_distances
from attacks.disaggregation.space.gram import gram, standardised_gram
from attacks.disaggregation.space.gram_corrections import clipped, off_diagonal_space


@pytest.fixture(params=[1, 1 << 24], ids=["slices of one column", "one slice"])
def slice_entries(request, monkeypatch):
    monkeypatch.setattr("attacks.disaggregation.space.mapped_memory.SLICE_ENTRIES", request.param)


@pytest.mark.usefixtures("slice_entries")
def test_slices_add_up_to_the_gram_matrix():
    A = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    np.testing.assert_allclose(gram(A), A.astype(np.float64) @ A.T.astype(np.float64))


@pytest.mark.usefixtures("slice_entries")
def test_every_coordinate_has_the_same_weight_once_standardised():
    A = np.random.default_rng(1).normal(size=(6, 4))
    scaled = np.column_stack((A * [1, 10, 0.1, 1e3], np.full(6, 5.0)))  # the last one never changes
    np.testing.assert_allclose(standardised_gram(scaled), standardised_gram(A))


def test_noise_on_the_diagonal_does_not_tilt_the_space():
    rng = np.random.default_rng(2)
    U = np.linalg.qr(rng.normal(size=(60, 3)))[0]
    signal = (U * [9.0, 7.0, 5.0]) @ U.T
    busy = np.where(np.arange(60) < 6, 4.0, 0.1)
    found = off_diagonal_space(signal + np.diag(busy), 3)
    principal = np.linalg.eigh(signal + np.diag(busy))[1][:, -3:]
    cosines = [np.linalg.svd(basis.T @ U, compute_uv=False).min() for basis in (found, principal)]
    assert cosines[0] > 0.999
    assert cosines[0] > cosines[1]


def test_no_eigenvalue_is_left_above_the_median():
    K = np.diag([100.0, 3.0, 2.0, 1.0, 0.0])
    np.testing.assert_allclose(clipped(K, 4), np.diag([2.5, 2.5, 2.0, 1.0, 0.0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flip_costs_are_the_changes_of_the_squared_distance(dtype):
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.normal(size=(8, 3)))[0].astype(dtype)
    columns = (rng.random((4, 8)) < 0.5).astype(dtype)

    def distances(rows):
        return ((rows - (rows @ U) @ U.T) ** 2).sum(axis=1)

    costs = flip_costs(columns, columns - (columns @ U) @ U.T, unit_distances(U))
    assert costs.dtype == dtype
    for entry in range(8):
        flipped = columns.copy()
        flipped[:, entry] = 1 - flipped[:, entry]
        np.testing.assert_allclose(
            costs[:, entry], distances(flipped) - distances(columns), atol=10 * np.finfo(dtype).eps
        )
