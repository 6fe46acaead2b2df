"""Lattice reduction: binary columns at any rate, from hardly more rounds than clients."""

import subprocess
import sys

import numpy as np
import pytest

from analytics.report import windowed_counts
from attacks.disaggregation import DisaggregationProblem, disaggregate
from attacks.disaggregation.columns.lattice import binary_columns, completed, integer_columns
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Auto, Blind, Projection

pytest.importorskip("fpylll")


def planted(seed, *, clients, rounds, rate, dtype=np.float64):
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < rate).astype(np.uint8)
    return P, (P @ rng.standard_normal((clients, clients + 8))).astype(dtype)


def columns(P):
    return {column.tobytes() for column in np.ascontiguousarray(P.T)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rate", [0.2, 0.4, 0.5, 0.7])
def test_all_columns_at_high_rates_from_two_rounds_per_client(rate, dtype):
    P, A = planted(1, clients=40, rounds=80, rate=rate, dtype=dtype)
    problem = DisaggregationProblem(A, None, num_clients=40)
    recovery = disaggregate(problem, Blind(max_iterations=1), rng=np.random.default_rng(0))
    assert columns(recovery.participation) == columns(P)


def test_without_the_library_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setattr("attacks.disaggregation.columns.lattice.available", lambda: False)
    _, A = planted(1, clients=40, rounds=50, rate=0.5)
    problem = DisaggregationProblem(A, None, num_clients=40)
    recovery = disaggregate(problem, Blind(max_iterations=1), rng=np.random.default_rng(0))
    assert all("pip install fpylll" in reason for reason in recovery.reason)


def test_counts_name_the_columns():
    P, A = planted(2, clients=48, rounds=64, rate=0.45)
    problem = DisaggregationProblem(A, windowed_counts(P, 8))
    recovery = disaggregate(problem, Blind(max_iterations=1), rng=np.random.default_rng(0))
    assert np.array_equal(recovery.participation, P)


def test_what_projections_miss_is_found_without_counts_and_named_by_them():
    P, A = planted(3, clients=32, rounds=40, rate=0.5)
    problem = DisaggregationProblem(A, windowed_counts(P, 10))
    projected = disaggregate(problem, Projection(max_iterations=200), rng=np.random.default_rng(0))
    recovery = disaggregate(problem, Auto(repair_time_limit_s=0), rng=np.random.default_rng(0))
    assert (projected.outcome == Outcome.UNRESOLVED).any()
    assert (recovery.outcome != Outcome.UNRESOLVED).all()
    assert columns(recovery.participation) == columns(P)


def test_integer_columns_are_a_basis_of_the_lattice():
    P, _ = planted(3, clients=20, rounds=60, rate=0.4)
    whole = integer_columns(np.linalg.qr(P.astype(float))[0], np.random.default_rng(0))
    times = np.linalg.lstsq(P.astype(float), whole.T.astype(float), rcond=None)[0]
    assert np.allclose(times, np.rint(times), atol=1e-6)
    assert np.isclose(abs(np.linalg.det(times)), 1)


def test_binary_columns_lie_in_the_space():
    P, _ = planted(4, clients=24, rounds=40, rate=0.3)
    basis = np.linalg.qr(P.astype(float))[0]
    *_, found = binary_columns(basis, max_block=20, rng=np.random.default_rng(0))
    assert len(found) == 24
    assert np.allclose(found @ basis @ basis.T, found, atol=1e-6)


def test_a_space_without_whole_numbers_gives_no_columns():
    basis = np.linalg.qr(np.random.default_rng(5).standard_normal((40, 20)))[0]
    assert not len(integer_columns(basis, np.random.default_rng(0)))
    assert not list(binary_columns(basis, max_block=20, rng=np.random.default_rng(0)))


def test_a_space_of_all_columns_gives_none():
    """As many rounds as clients, under noise: nothing is outside of the space."""
    assert not list(binary_columns(np.eye(8), max_block=20, rng=np.random.default_rng(0)))


def test_differences_of_columns_are_completed():
    rng = np.random.default_rng(0)
    a, b, c = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 1, 0]])
    assert {tuple(row) for row in completed(np.stack((a, b - a, a - c)), rng).tolist()} == {
        tuple(a),
        tuple(b),
        tuple(c),
    }


def test_a_worker_that_ignores_interrupts_goes_on_doing_so():
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from attacks.disaggregation.columns.lattice import _library; _library();"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_column_of_ones_among_the_known_does_no_harm():
    """Centred it is zero: a division by its length used to end in a search without end."""
    a, b, ones = np.array([[1, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1], [1, 1, 1, 1, 1, 1]])
    with np.errstate(all="raise"):
        found = completed(np.stack((a, ones, b + 2 * a)), np.random.default_rng(0))
    assert columns(found.T) == columns(np.stack((a, ones, b)).astype(np.uint8).T)
