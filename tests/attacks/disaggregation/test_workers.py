import numpy as np
import pytest

from attacks.disaggregation import disaggregate
from attacks.disaggregation.problem import ProblemError
from attacks.disaggregation.solvers import Projection
from attacks.disaggregation.workers import RayCluster, Threads
from tests.helpers.planted import planted


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("attacks.disaggregation.space.subspace.BLOCK_ROWS", 16)


def recovered(workers):
    # Few counts per client: some columns are found only once others were.
    case = planted(5, clients=60, rounds=110, window=10, rate=0.2)
    return disaggregate(case.problem, Projection(workers=workers), rng=np.random.default_rng(6))


def test_nothing_depends_on_the_number_of_threads(small_blocks):
    one, three = recovered(Threads(number=1)), recovered(Threads(number=3))
    assert np.array_equal(one.participation, three.participation)
    assert np.array_equal(one.outcome, three.outcome)
    assert np.array_equal(one.updates, three.updates, equal_nan=True)


def test_an_error_in_a_block_is_not_lost():
    def fail(shared, block):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(Threads(number=2).map(fail, None, [1, 2]))


def test_a_ray_cluster_that_is_not_there_is_named(monkeypatch):
    def refuse(**_):
        raise ConnectionError("nobody answers")

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(ProblemError, match=r"workers.address is 'auto': no Ray cluster: nobody answers"):
        recovered(RayCluster(address="auto"))


@pytest.mark.slow
def test_a_ray_cluster_gives_what_threads_give(small_blocks):
    ray, threads = recovered(RayCluster()), recovered(Threads())
    assert np.array_equal(ray.participation, threads.participation)
    assert np.array_equal(ray.outcome, threads.outcome)
