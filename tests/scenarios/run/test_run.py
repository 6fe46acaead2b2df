"""Runs from end to end, and what they leave behind."""

import json
import shutil

import numpy as np
import pytest

from analytics import windowed_counts
from analytics.report import ParticipationReport
from fedsim.core.errors import RunFailedError, UserError
from fedsim.records import Transcript, rounds_recorded
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import read_result, run_scenario, write_report
from scenarios.run.scenario import find_scenario, load_scenario
from scenarios.run.world import World

CONTRACT = {
    "disaggregation": (
        "exact_fraction", "bit_accuracy", "certified_fraction", "update_cosine", "solver", "seconds",
    ),
    "simulation": ("seconds", "rounds"),
    "training": ("test_accuracy",),
}  # fmt: skip


def run(file, out, *overrides):
    directory = RunDirectory.create(out, replace=False)
    result = run_scenario(World.prepare(load_scenario(file, overrides)), directory)
    return directory, result


def test_files_of_a_run(finished_run):
    result = json.loads(finished_run.result.read_text())
    for section, keys in CONTRACT.items():
        assert set(keys) <= set(result[section])
    with np.load(finished_run.recovery) as recovery:
        assert recovery["participation"].shape == (24, 6)
        assert recovery["participation"].dtype == np.uint8
        assert list(recovery["clients"]) == list(range(6))
        assert len(recovery["outcome"]) == 6
        assert recovery["updates"].shape[0] == 6
    assert "<html" in finished_run.report.read_text()


def test_a_run_without_noise_is_recovered(finished_run):
    found = read_result(finished_run).disaggregation
    assert found.exact_fraction == found.bit_accuracy == 1
    assert found.update_cosine > 0.999
    assert found.baselines.counts_only_exact_fraction < 0.1
    assert found.baselines.aggregate_update_cosine < 0.9


def test_the_transcript_is_the_sum_of_what_clients_sent(finished_run):
    """A = P G, in files: with a fixed model and full batches there is no noise."""
    transcript, truth = Transcript.load(finished_run.transcript), Truth.load(finished_run.truth)
    np.testing.assert_array_equal(transcript.cohort_sizes, truth.participation.sum(axis=1))
    np.testing.assert_array_equal(transcript.weights, 16 * transcript.cohort_sizes)
    P, G = truth.participation.astype(np.float64), truth.updates.astype(np.float64)
    np.testing.assert_allclose(transcript.aggregates, P @ G, rtol=0, atol=1e-5 * np.abs(G).max())


def test_counts_are_what_devices_counted(finished_run):
    counts = ParticipationReport.read_csv(finished_run.counts)
    expected = windowed_counts(Truth.load(finished_run.truth).participation, 4)
    for name in ("clients", "client", "start", "stop", "count"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(expected, name))


def test_the_same_scenario_gives_the_same_bytes(finished_run, scenario_file, tmp_path):
    again, _ = run(scenario_file, tmp_path / "again")
    for name in (
        "recovery.npz",
        "counts.csv",
        "scenario.toml",
        "transcript/aggregates.npy",
        "truth/updates.npy",
    ):
        assert (again.path / name).read_bytes() == (finished_run.path / name).read_bytes(), name


def test_another_seed_gives_another_run(finished_run, scenario_file, tmp_path):
    other, _ = run(scenario_file, tmp_path / "other", "seed=4")
    assert other.counts.read_bytes() != finished_run.counts.read_bytes()


def test_changing_the_attack_does_not_change_the_training(finished_run, scenario_file, tmp_path):
    other, _ = run(scenario_file, tmp_path / "other", "attack.solver=highs")
    assert (other.transcript / "aggregates.npy").read_bytes() == (
        finished_run.transcript / "aggregates.npy"
    ).read_bytes()


def test_an_updated_model_learns(scenario_file, tmp_path):
    _, result = run(
        scenario_file,
        tmp_path / "run",
        "federation.server_model=updated",
        "federation.participation.rate=1",
        "data.train_images=900",
        "data.test_images=300",
        "clients.dataset_size=150",
        "clients.local_epochs=4",
        "clients.lr=0.002",
    )
    assert result.training.test_accuracy > 0.2


@pytest.mark.parametrize(("batch_size", "dataset_size"), [(1, 16), (5, 16)])
def test_batch_normalisation_is_refused_a_batch_of_one(scenario_file, batch_size, dataset_size):
    overrides = (
        "model={ name = 'resnet', norm = 'batch' }",
        f"clients={{ batch_size = {batch_size}, dataset_size = {dataset_size} }}",
    )
    with pytest.raises(UserError, match=rf"^clients\.batch_size is {batch_size}: client 0 .* batch of one"):
        World.prepare(load_scenario(scenario_file, overrides))
    World.prepare(load_scenario(scenario_file, ("model=resnet", *overrides[1:])))


def test_fewer_rounds_than_clients_is_a_result_with_a_reason(scenario_file, tmp_path):
    directory, result = run(scenario_file, tmp_path / "run", "federation.rounds=4")
    with np.load(directory.recovery) as recovery:
        unresolved = recovery["outcome"] == "unresolved"
        assert unresolved.any()
        assert all("rank" in reason for reason in recovery["reason"][unresolved])
    assert result.disaggregation.outcomes["unresolved"] == unresolved.sum()
    assert sum(result.disaggregation.unresolved.values()) == unresolved.sum()
    assert result.disaggregation.false_certificates == 0


def test_report_is_drawn_from_the_files(finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "run")
    directory = RunDirectory.open(tmp_path / "run")
    directory.report.unlink()
    write_report(directory)
    assert directory.report.read_text() == finished_run.report.read_text()


def test_a_run_is_not_overwritten_by_accident(finished_run, tmp_path):
    with pytest.raises(UserError, match="already holds a run"):
        RunDirectory.create(finished_run.path, replace=False)
    (tmp_path / "notes.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(UserError, match="is not a run"):
            RunDirectory.create(tmp_path, replace=replace)
    assert (tmp_path / "notes.txt").exists()


def test_force_deletes_nothing_but_a_run(finished_run, tmp_path):
    """Also not in a folder with a file that is called as a run's is."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "scenario.toml").write_text("title = 'my own'")
    with pytest.raises(UserError, match="is not a run"):
        RunDirectory.create(mine, replace=True)
    assert (mine / "scenario.toml").exists()
    folder = tmp_path / "run"
    shutil.copytree(finished_run.path, folder)
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"would delete thesis\.txt, which is not part of the run"):
        RunDirectory.create(folder, replace=True)
    RunDirectory.open(folder, attacked=True)
    (folder / "thesis.txt").unlink()
    RunDirectory.create(folder, replace=True)
    assert list(folder.iterdir()) == []


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(UserError, match=r"not a finished run: scenario\.toml is missing"):
        RunDirectory.open(tmp_path)


def test_what_is_gone_from_a_run_is_named(finished_run, tmp_path):
    """The attack can do without what it will write anyway, the report cannot."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    directory = RunDirectory.open(tmp_path / "run", attacked=True)
    directory.recovery.unlink()
    RunDirectory.open(directory.path)
    with pytest.raises(UserError, match=r"recovery\.npz is missing"):
        RunDirectory.open(directory.path, attacked=True)
    shutil.rmtree(directory.truth)
    with pytest.raises(UserError, match="truth is missing"):
        RunDirectory.open(directory.path)


def test_a_training_that_diverges_ends_at_once_and_is_told_in_a_line(scenario_file, tmp_path):
    with pytest.raises(RunFailedError, match=r"diverged.* round 0 .*lower clients\.lr"):
        run(
            scenario_file,
            tmp_path / "run",
            "clients.lr=1e30",
            "clients.local_epochs=3",
            "federation.rounds=1000",
            "federation.participation.rate=1",
        )
    assert rounds_recorded(tmp_path / "run" / "transcript") == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "history.csv",
        "pace.csv",
        "scenario.toml",
        "transcript",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["projection", "gurobi", "highs"])
def test_a_fixed_model_is_recovered_exactly(solver, tmp_path):
    fixed = ("federation.server_model=fixed", "federation.rounds=96", "attack.inference=[]")
    _, result = run(find_scenario("quickstart"), tmp_path / "run", f"attack.solver={solver}", *fixed)
    assert result.disaggregation.exact_fraction == 1.0
    assert result.disaggregation.update_cosine > 0.99
    assert result.disaggregation.baselines.counts_only_exact_fraction < 0.01


@pytest.mark.slow
def test_the_quickstart_learns_and_its_clients_are_separated(tmp_path):
    _, result = run(find_scenario("quickstart"), tmp_path / "run")
    assert result.training.test_accuracy > 0.3  # chance is 0.1
    found = result.disaggregation
    assert found.exact_fraction > 0.9
    assert found.baselines.counts_only_exact_fraction < 0.01
    assert found.update_cosine > 0.9
    assert found.baselines.aggregate_update_cosine < 0.5
    images = result.inversion["analytic"].psnr_db
    assert images.grey < images.aggregate + 2 < images.disaggregated
