"""Independent component analysis: soft columns from a space alone."""

import numpy as np
import pytest

from attacks.disaggregation.noise.ica import independent_columns, one_level, split_in_two


@pytest.mark.parametrize("constant", [False, True])
def test_the_rotation_of_independent_columns_is_undone(constant):
    rng = np.random.default_rng(0)
    P = (rng.random((400, 8)) < 0.15).astype(np.float64)
    basis = np.linalg.qr(np.column_stack((P, np.ones(400))) if constant else P)[0]
    found = independent_columns(basis, level=one_level(0.15), max_iterations=200, rng=rng)
    assert found.shape == (400, 8)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(found.T @ found / 400, np.eye(8), atol=1e-9)
    columns = {tuple(column) for column in split_in_two(found).T.tolist()}
    assert columns == {tuple(column) for column in P.T.astype(int).tolist()}


def test_a_column_is_split_at_the_middle_of_its_two_levels():
    X = np.array([[-1.0, 0.2, 3.0], [-0.8, 0.1, 2.0], [2.0, 0.9, 2.9], [-1.2, 1.1, 2.1]])
    assert split_in_two(X).T.tolist() == [[0, 0, 1, 0], [0, 0, 1, 1], [1, 0, 1, 0]]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_the_contrast_is_flat_above_the_ones(rate):
    ones = np.sqrt((1 - rate) / rate)  # of a column with mean 0 and variance 1
    assert one_level(rate) <= max(ones, 1.0)
