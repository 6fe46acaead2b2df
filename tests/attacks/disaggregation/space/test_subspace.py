import numpy as np
import pytest

from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.space.affine import AffineSpace
from attacks.disaggregation.space.subspace import _from_gram, _from_sketch, find_subspace
from tests.helpers.planted import planted


@pytest.fixture(scope="module")
def aggregates():
    rng = np.random.default_rng(1)
    P = (rng.random((300, 60)) < 0.2).astype(np.float32)
    return P, P @ rng.standard_normal((60, 200), dtype=np.float32)


def sine(basis, columns):
    """The sine of the largest angle between two spaces."""
    Q, _ = np.linalg.qr(columns.astype(np.float64))
    return float(np.linalg.norm(Q - basis @ (basis.T @ Q), 2))


@pytest.mark.parametrize("way", [_from_gram, lambda A, n: _from_sketch(A, n, np.random.default_rng(2))])
def test_the_space_of_sums_in_single_precision_is_known_as_well_as_it_says(aggregates, way):
    P, A = aggregates
    space = way(A, 60)
    assert space.exact
    assert space.rank == 60
    assert np.allclose(space.basis.T @ space.basis, np.eye(60), atol=1e-9)
    assert sine(space.basis, P) < 10 * space.angle < 1e-3


def test_a_sketch_of_noisy_sums_is_not_exact(aggregates):
    _, A = aggregates
    noisy = A + 0.1 * np.random.default_rng(3).standard_normal(A.shape)
    space = _from_sketch(noisy, 60, np.random.default_rng(2))
    assert space is not None
    assert not space.exact


def test_clients_that_are_missing_from_large_sums_lower_the_rank(aggregates, monkeypatch):
    _, A = aggregates
    monkeypatch.setattr("attacks.disaggregation.space.subspace.GRAM_ROUNDS", 0)
    problem = DisaggregationProblem(A, None, num_clients=70)
    space = find_subspace(problem, rng=np.random.default_rng(2))
    assert space.rank == 60
    assert space.exact


def test_coordinates_cut_by_the_counts_are_orthonormal_and_sum_to_zero_over_windows():
    case = planted(4, clients=20, rounds=80, window=8, rate=0.2)
    space = AffineSpace(case.problem.windows, _from_gram(case.problem.aggregates, 20))
    B = space.B
    assert B.shape == (80, 10)
    assert np.allclose(B.T @ B, np.eye(10), atol=1e-5)
    assert np.allclose(B.reshape(10, 8, 10).sum(axis=1), 0, atol=1e-5)
    columns = case.participation.T.astype(np.float32)
    rest = columns - space.offsets(np.arange(20))
    assert np.allclose(rest, (rest @ B) @ B.T, atol=1e-4)
