"""Runs with masks and with devices that fail, from end to end."""

import numpy as np
import pytest

from analytics import windowed_counts
from analytics.report import ParticipationReport
from attacks.disaggregation import Recovery
from fedsim.records import Transcript
from fedsim.trusted.masking import Masked
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World


def run(file, out, *overrides):
    directory = RunDirectory.create(out, replace=False)
    result = run_scenario(World.prepare(load_scenario(file, overrides)), directory)
    return directory, result


# Masked sums of fewer than three updates are void.
COHORTS = "federation.participation={ name = 'cohort', size = 3 }"


@pytest.fixture
def masked_run(scenario_file, tmp_path):
    return run(scenario_file, tmp_path / "masked", "federation.aggregation=masked", COHORTS)


@pytest.fixture
def ideal_run(scenario_file, tmp_path):
    directory, _ = run(scenario_file, tmp_path / "ideal", COHORTS)
    return directory


def test_masks_change_nothing_but_the_last_digits(masked_run, ideal_run):
    directory, result = masked_run
    ideal, masked = Transcript.load(ideal_run.transcript), Transcript.load(directory.transcript)
    slack = Masked().fixed_point.step / 2 * ideal.cohort_sizes[:, None] + 1e-6
    assert (np.abs(masked.aggregates - ideal.aggregates) <= slack).all()
    np.testing.assert_array_equal(masked.cohort_sizes, ideal.cohort_sizes)
    np.testing.assert_array_equal(masked.weights, ideal.weights)
    assert directory.counts.read_bytes() == ideal_run.counts.read_bytes()
    for name in ("participation.npy", "updates.npy"):
        assert (directory.truth / name).read_bytes() == (ideal_run.truth / name).read_bytes()
    assert result.simulation.void_rounds == 0


def test_masks_do_not_stop_the_attack(masked_run, ideal_run):
    directory, result = masked_run
    found, expected = Recovery.load(directory.recovery), Recovery.load(ideal_run.recovery)
    np.testing.assert_array_equal(found.participation, expected.participation)
    assert result.disaggregation.exact_fraction == 1
    assert result.disaggregation.update_cosine > 0.999


def test_random_keys_leave_no_trace(masked_run, scenario_file, tmp_path):
    directory, _ = masked_run
    again, _ = run(scenario_file, tmp_path / "again", "federation.aggregation=masked", COHORTS)
    for name in ("recovery.npz", "counts.csv", "transcript/aggregates.npy", "transcript/rounds.csv"):
        assert (again.path / name).read_bytes() == (directory.path / name).read_bytes(), name


def test_sums_of_fewer_than_three_updates_are_void(scenario_file, tmp_path):
    directory, result = run(scenario_file, tmp_path / "masked", "federation.aggregation=masked")
    transcript, invited = Transcript.load(directory.transcript), World.prepare(load_scenario(scenario_file))
    sizes = invited.schedule.sum(axis=1)
    np.testing.assert_array_equal(transcript.void, (sizes == 1) | (sizes == 2))
    np.testing.assert_array_equal(transcript.cohort_sizes, np.where(sizes < 3, 0, sizes))
    assert result.simulation.void_rounds == transcript.void.sum() > 0


def test_lost_updates_are_in_the_counts_and_not_in_the_sums(scenario_file, tmp_path):
    directory, result = run(
        scenario_file,
        tmp_path / "run",
        "clients.failures={ absent = 0.05, interrupted = 0.05, lost = 0.1 }",
        "federation.rounds=48",
    )
    transcript, truth = Transcript.load(directory.transcript), Truth.load(directory.truth)
    np.testing.assert_array_equal(transcript.cohort_sizes, truth.participation.sum(axis=1))
    excess = (
        ParticipationReport.read_csv(directory.counts).count - windowed_counts(truth.participation, 4).count
    )
    assert (excess >= 0).all()
    assert excess.sum() > 0
    assert result.disaggregation.false_certificates == 0
    assert result.disaggregation.exact_fraction > 0.8


def test_a_void_round_is_marked_and_the_run_goes_on(scenario_file, tmp_path):
    directory, result = run(
        scenario_file,
        tmp_path / "run",
        'federation.aggregation={ name = "masked", threshold = 0.9 }',
        "clients.failures.lost=0.1",
        "federation.participation.rate=0.6",
    )
    transcript, truth = Transcript.load(directory.transcript), Truth.load(directory.truth)
    void = transcript.void
    assert 0 < void.sum() < len(void)
    assert result.simulation.void_rounds == void.sum()
    assert not transcript.aggregates[void].any()
    assert not transcript.cohort_sizes[void].any()
    assert not truth.participation[void].any()
    P, G = truth.participation.astype(np.float64), truth.updates.astype(np.float64)
    np.testing.assert_allclose(transcript.aggregates, P @ G, rtol=0, atol=1e-5 * np.abs(G).max() + 1e-6)
    counts = ParticipationReport.read_csv(directory.counts)
    assert counts.count.sum() > P.sum()
    assert result.disaggregation.false_certificates == 0
