"""Damaged input of every kind: a documented status, one line, and nothing half-written."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.fuzzing import Case, cases, no_ordinary_file, templates, try_case

CASES = {
    # These train or attack.
    "scenario": 10,
    "checkpoint": 10,
    "run, attacked": 10,
    "counts": 17,
    "sums .npy": 17,
    "sums .npz": 17,
    "sums .parquet": 17,
    "tables": 17,
    "models": 17,
    "tap of sums": 17,
    "tap of models": 17,
    "data set": 10,
    "pictures": 7,
    "run, reported": 17,
}
"""Numbers of cases: 200 in all. `python -m benchmarks.fuzz` tries 2,000."""


@pytest.fixture(scope="module")
def kinds():
    return {kind.name: kind for kind in templates()}


@pytest.mark.parametrize("kind", CASES)
def test_damaged_input_ends_in_one_line(kinds, kind):
    if kind not in kinds:
        pytest.skip("needs pyarrow")

    @settings(
        max_examples=CASES[kind],
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def search(data):
        case = data.draw(cases(kinds[kind]))
        ending = try_case(case)
        assert not ending.fault, f"{kind}, {case.file}: {ending.fault}\n{ending.stderr[-2000:]}"

    search()


@pytest.mark.parametrize(
    ("kind", "file", "how"),
    [
        ("checkpoint", "run/transcript/rounds.csv", "folder"),
        ("checkpoint", "run/transcript/aggregates.npy", "loop"),
        ("checkpoint", "run/transcript/aggregates.npy", "gone"),
        ("checkpoint", "run/transcript/layers.json", "folder"),
        ("run, attacked", "run/truth/updates.npy", "folder"),
        ("run, attacked", "run/transcript/rounds.csv", "pipe"),
        ("run, reported", "run/recovery.npz", "folder"),
    ],
)
def test_faults_that_fuzzing_found(kinds, kind, file, how):
    ending = try_case(Case(kinds[kind], file, no_ordinary_file(how), sealed_again=False))
    assert ending.status in {2, 3}
    assert not ending.fault, ending.stderr
