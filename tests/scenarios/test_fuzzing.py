"""Damaged input of every kind: a documented status, one line, and nothing half-written."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.fuzzing.damages import Case, cases, no_ordinary_file
from tests.helpers.fuzzing.endings import try_case
from tests.helpers.fuzzing.kinds import templates

CASES = {
    # These train, attack or draw.
    "scenario": 8,
    "checkpoint": 6,
    "run, attacked": 8,
    "run, reported": 10,
    "tap of sums": 14,
    "tap of models": 12,
    "counts": 22,
    "sums .npy": 14,
    "sums .npz": 14,
    "sums .parquet": 14,
    "tables": 14,
    "models": 14,
    "participations": 10,
    "SuperLink database": 10,
    "FLARE files": 10,
    "data set": 10,
    "pictures": 10,
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
