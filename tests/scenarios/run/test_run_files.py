"""The files of a run: one process at a time writes them, a changed file is noticed, the truth is private."""

import os
import shutil
import stat
import zipfile

import numpy as np
import pytest

from fedsim.core.locks import alone_in
from scenarios.run.directory import RunDirectory
from scenarios.sweep.work import HONEST
from tests.helpers.runs import reseal


@pytest.fixture
def run_copy(finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize(
    "command",
    [
        ("run", "small.toml", "--out", "run", "--force", "--set", "seed=4"),
        ("run", "small.toml", "--out", "run", "--resume"),
        ("attack", "run"),
        ("report", "run"),
    ],
)
def test_a_folder_that_another_process_works_in_is_left_alone(
    fedsim, run_copy, scenario_file, tmp_path, command
):
    before = snapshot(run_copy.path)
    with alone_in(run_copy.path):
        done = fedsim(*command)
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "fedsim: run: another process is working there: wait for it, or choose another folder\n"
    )
    assert snapshot(run_copy.path) == before
    assert fedsim("report", "run").status == 0


def test_the_lock_lasts_from_creation_to_report(fedsim, scenario_file, tmp_path, monkeypatch):
    """Two runs in one folder could leave the result of one and the truth of the other."""
    from scenarios.run import runner

    asked, write_report = [], runner.write_report

    def ask(directory):
        write_report(directory)
        child = os.fork()
        if child == 0:
            try:
                with alone_in(directory.path):
                    os._exit(0)
            except BaseException:
                os._exit(3)
        asked.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    monkeypatch.setattr(runner, "write_report", ask)
    assert fedsim("run", scenario_file).status == 0
    assert fedsim("attack", "runs/small").status == 0
    assert asked == [3, 3]


def change(file):
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("attack", "transcript/aggregates.npy"),
        ("attack", "transcript/rounds.csv"),
        ("attack", "counts.csv"),
        ("attack", "truth/participation.npy"),
        ("attack", "truth/answers.csv"),
        ("attack", "scenario.toml"),
        ("report", "truth/participation.npy"),
        ("report", "truth/updates.npy"),
        ("report", "result.json"),
        ("report", "recovery.npz"),
    ],
)
def test_a_changed_file_is_named(fedsim, run_copy, command, file):
    change(run_copy.path / file)
    done = fedsim(command, "run")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        f"fedsim: run/{file} has changed since the run wrote it: restore it, or run it anew\n"
    )


def test_a_finished_run_is_checked_before_it_is_called_complete(fedsim, run_copy, scenario_file):
    assert fedsim("run", scenario_file, "--out", "run", "--resume").status == 0
    change(run_copy.path / "transcript/aggregates.npy")
    done = fedsim("run", scenario_file, "--out", "run", "--resume")
    assert done.status == 2
    assert done.stderr.startswith("fedsim: run/transcript/aggregates.npy has changed since the run wrote it")


def test_an_attack_that_was_interrupted_can_be_repeated(fedsim, run_copy, monkeypatch):
    before = snapshot(run_copy.path)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scenarios.run.runner.write_report", interrupt)
        assert fedsim("attack", "run", "--force", "--set", "attack.solver=projection").status == 130
    assert fedsim("attack", "run", "--force", "--set", "attack.solver=auto").status == 0
    after = snapshot(run_copy.path)
    assert after[run_copy.recovery] == before[run_copy.recovery]
    assert fedsim("report", "run").status == 0


def interrupted(fedsim, scenario_file, monkeypatch):
    """A run that was interrupted after its training."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scenarios.run.runner.attack_run", interrupt)
        assert fedsim("run", scenario_file).status == 130


@pytest.mark.parametrize("file", ["aggregates.npy", "rounds.csv"])
def test_changed_sums_are_not_resumed(fedsim, scenario_file, tmp_path, monkeypatch, file):
    interrupted(fedsim, scenario_file, monkeypatch)
    change(tmp_path / "runs/small/transcript" / file)
    before = snapshot(tmp_path / "runs")
    done = fedsim("run", scenario_file, "--resume")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        f"fedsim: runs/small/transcript/{file} has changed since the run wrote it: restore it, or start the "
        "run again with --force\n"
    )
    assert snapshot(tmp_path / "runs") == before


@pytest.mark.parametrize("entry", ["server", "strategy"])
def test_changed_models_and_answers_are_not_resumed(fedsim, scenario_file, tmp_path, monkeypatch, entry):
    """The first holds the model, the second what devices answered so far; both stay valid archives."""
    interrupted(fedsim, scenario_file, monkeypatch)
    file = tmp_path / "runs/small/checkpoint.zip"
    with zipfile.ZipFile(file) as archive:
        content = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    content[entry][-1] ^= 1
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, bytes(data))
    done = fedsim("run", scenario_file, "--resume")
    assert (done.status, done.stdout) == (2, "")
    assert "runs/small/checkpoint.zip: not a checkpoint: " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_participation_is_zeros_and_ones(fedsim, run_copy):
    file = run_copy.truth / "participation.npy"
    participation = np.load(file)
    participation[0, 0] = 7
    np.save(file, participation)
    reseal(run_copy.path)
    done = fedsim("report", "run")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "fedsim: run/truth: not the truth of a run: participation.npy: expected zeros and ones, "
        "rounds × clients\n"
    )


def test_a_training_that_changed_is_no_base_for_points(fedsim, scenario_file, tmp_path):
    sweep = 'title = "Solvers"\nbase = "small.toml"\nvary.attack.solver = ["auto"]\n'
    (tmp_path / "solvers.toml").write_text(sweep)
    assert fedsim("sweep", "solvers.toml", "--workers", 1).status == 0
    (training,) = (tmp_path / "runs/solvers/trainings").iterdir()
    (point,) = (tmp_path / "runs/solvers/points").iterdir()
    assert (training / HONEST).exists()
    change(training / "transcript/aggregates.npy")
    (tmp_path / "solvers.toml").write_text(sweep.replace('"auto"', '"auto", "projection"'))
    done = fedsim("sweep", "solvers.toml", "--workers", 1)
    assert "transcript/aggregates.npy has changed since the run wrote it" in done.stdout + done.stderr
    assert "has changed since" in fedsim("attack", point).stderr


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_the_truth_and_checkpoints(fedsim, scenario_file, tmp_path, monkeypatch):
    interrupted(fedsim, scenario_file, monkeypatch)
    run = RunDirectory(tmp_path / "runs/small")
    assert mode(run.checkpoint) == 0o600
    assert fedsim("run", scenario_file, "--resume").status == 0
    assert mode(run.truth) == 0o700
    assert {file.name: mode(file) for file in run.truth.iterdir()} == dict.fromkeys(
        (file.name for file in run.truth.iterdir()), 0o600
    )
    assert {"participation.npy", "updates.npy", "answers.csv"} <= {file.name for file in run.truth.iterdir()}
    assert mode(run.manifest.file) == 0o600
    assert mode(run.counts) != 0o600
