"""The command as a user meets it: arguments in, two streams and an exit status out."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import click
import pytest
import typer

from fedsim.core.errors import ProcessLostError, RunFailedError
from scenarios.cli import app
from tests.helpers.runs import reseal


@pytest.fixture
def run_copy(finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "run")
    return tmp_path / "run"


def files_below(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_has_help():
    def commands(group, name):
        for key, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from commands(command, f"{name} {key}")
            else:
                yield f"{name} {key}", command

    found = dict(commands(typer.main.get_command(app), "fedsim"))
    assert {"fedsim run", "fedsim reproduce", "fedsim data get"} <= set(found)
    silent = [f"{name} {p.name}" for name, command in found.items() for p in command.params if not p.help]
    assert not silent
    assert all(command.help for command in found.values())


def test_help_needs_nothing_heavy():
    """Time is not asserted in tests; what costs it is."""
    code = (
        "import sys\nfrom scenarios.cli import main\nsys.argv = ['fedsim', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'flwr', 'gurobipy', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in (
        "run",
        "deploy",
        "attack",
        "report",
        "list",
        "data",
        "sweep",
        "audit",
        "forecast",
        "evaluate",
    ):
        assert f" {command} " in done.stdout


def test_run_prints_json_for_machines_and_nothing_else(fedsim, scenario_file, tmp_path):
    done = fedsim("run", scenario_file, "--json")
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "runs/small/result.json").read_text())
    assert done.stderr == ""


def test_attack_again_with_another_solver(fedsim, run_copy, tmp_path):
    before = files_below(run_copy)
    done = fedsim("attack", run_copy, "--set", "attack.solver=highs")
    assert (done.status, files_below(run_copy)) == (2, before)
    assert "holds the result of another attack: choose --out for a copy, or add --force" in done.stderr
    done = fedsim("attack", run_copy, "--out", run_copy / "inner")
    assert (done.status, files_below(run_copy)) == (2, before)
    assert "lies in the run that is attacked: choose a folder beside it" in done.stderr
    done = fedsim("attack", run_copy, "--set", "attack.solver=highs", "--out", tmp_path / "copy")
    assert (done.status, files_below(run_copy)) == (0, before), done.stderr
    done = fedsim("attack", run_copy, "--set", "attack.solver=highs", "--force")
    assert done.status == 0, done.stderr
    for file in ("recovery.npz", "scenario.toml", "counts.csv"):
        assert (run_copy / file).read_bytes() == (tmp_path / "copy" / file).read_bytes()
    assert json.loads((run_copy / "result.json").read_text())["disaggregation"]["solver"] == "highs"
    assert 'name = "highs"' in (run_copy / "scenario.toml").read_text()
    assert "exact columns" in done.stdout


def test_report_again(fedsim, run_copy):
    (run_copy / "report.html").unlink()
    assert fedsim("report", run_copy).stdout.strip() == str(run_copy / "report.html")
    assert (run_copy / "report.html").exists()


def test_list_names_what_there_is(fedsim):
    done = fedsim("list", "--json")
    found = json.loads(done.stdout)
    assert {"synthetic", "cifar10", "cifar100", "lfw", "folder"} <= set(found["data sets"])
    assert {"iid", "dirichlet"} <= set(found["partitions"])
    assert {"lenet", "mlp", "cnn", "resnet", "custom"} <= set(found["models"])
    assert {"auto", "projection", "gurobi", "highs"} <= set(found["solvers"])
    assert {"quickstart", "cifar10_fedavg"} <= set(found["scenarios"])


def test_a_run_that_failed_elsewhere_is_no_fault_and_one_line(fedsim, scenario_file, monkeypatch):
    def fail(*, nodes):
        raise RunFailedError(f"{nodes} nodes are too many")

    monkeypatch.setattr("scenarios.run.deploy.private_superlink", fail)
    done = fedsim("deploy", scenario_file)
    assert (done.status, done.stdout, done.stderr) == (3, "", "fedsim: 6 nodes are too many\n")


def test_a_deployed_run_that_lost_a_process_says_how_to_start_again(fedsim, scenario_file, monkeypatch):
    @contextmanager
    def losing(*, nodes):
        raise ProcessLostError(f"supernode-{nodes - 1} ended")
        yield

    monkeypatch.setattr("scenarios.run.deploy.private_superlink", losing)
    done = fedsim("deploy", scenario_file, "--out", "my run")
    line = (
        f"fedsim: supernode-5 ended; start again with: fedsim deploy {scenario_file} --out 'my run' --force\n"
    )
    assert (done.status, done.stdout, done.stderr) == (3, "", line)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("truth/participation.npy", None, "truth/participation.npy is missing"),
        ("truth/updates.npy", b"", "truth: not the truth of a run"),
        ("result.json", b"{", "result.json: not the result of a run"),
        ("result.json", b"{}", "result.json: title: missing (and 8 more mistakes); run the scenario again"),
        ("result.json", b"null", "result.json: not the result of a run: 'NoneType' object is not iterable"),
        (
            "result.json",
            b'{"simulation": null}',
            "result.json: title: missing (and 8 more mistakes); run the scenario again",
        ),
        ("recovery.npz", b"PK", "recovery.npz: not a recovery"),
        ("scenario.toml", b"\xff", "scenario.toml: not the scenario of a run: 'utf-8' codec can't decode"),
    ],
)
def test_what_is_wrong_with_the_files_of_a_run_is_named(fedsim, run_copy, file, content, message):
    if content is None:
        (run_copy / file).unlink()
    else:
        (run_copy / file).write_bytes(content)
        reseal(run_copy)
    done = fedsim("report", run_copy)
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr


HEADER = b"client,start,stop,count\n"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("counts.csv", b"", "counts.csv: not the counts of a run"),
        ("counts.csv", b"\xff\x00", "counts.csv: not the counts of a run"),
        ("counts.csv", HEADER + b"0,0,6,9\n", "counts.csv, line 2: client 0, rounds 0..5, count 9: more"),
        ("counts.csv", HEADER + b"0,0,600,9\n", "there are only 24 rounds of sums"),
        ("counts.csv", HEADER + b"77,0,6,1\n", "counts.csv: 77 is no client of this run"),
        ("counts.csv", HEADER + b"Ada,0,6,1\n", "counts.csv: Ada is no client of this run"),
        (
            "transcript/rounds.csv",
            b"round,cohort_size,weight\n0,many,1\n",
            "not a finished transcript: invalid",
        ),
        ("transcript/rounds.csv", b"round\n0\n", "not a finished transcript: cohort_size is missing"),
        ("transcript/layers.json", b"{}", "not a finished transcript: shapes is missing"),
        ("transcript/aggregates.npy", b"", "not a finished transcript: "),
    ],
)
def test_what_is_wrong_with_a_view_is_named(fedsim, run_copy, file, content, message):
    (run_copy / file).write_bytes(content)
    reseal(run_copy)
    done = fedsim("attack", run_copy)
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr


def test_too_little_memory_is_one_line(fedsim, scenario_file, monkeypatch):
    def fail(*_):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr("scenarios.run.world.World.prepare", fail)
    done = fedsim("run", scenario_file)
    assert (done.status, done.stderr) == (3, "fedsim: not enough memory: Unable to allocate 1 TiB\n")


def test_what_torch_cannot_allocate_is_memory_too(fedsim, scenario_file):
    done = fedsim("run", scenario_file, "--set", "model.hidden=1000000000")
    assert (done.status, len(done.stderr.splitlines())) == (3, 1)
    assert done.stderr.startswith("fedsim: not enough memory: you tried to allocate ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "clients.batch_sise=8"], "clients.batch_sise: unknown key"),
        (["--set", "clients.batch_size=eight"], "clients.batch_size is 'eight': expected a valid integer"),
        (["--set", "analytics.window=0"], "analytics.window is 0: expected greater than 0"),
        (["--set", "federation.strategy={name='fedadam'"], "expected a TOML table or list: Unclosed inline"),
        (["--set", "data={ name = 'cifar10', path = 'gone.npz' }"], "data.path: there is no file gone.npz"),
        (["--set", "clients.dataset_size=1000"], "clients.dataset_size: 6 clients × 1000 examples need 6000"),
        (["--set", "federation.participation={ name = 'cohort', size = 9 }"], "participation.size is 9"),
        (["--set", "clients.lr=1e39"], "clients.lr is 1e+39: expected 1e+30 at most"),
        (["--set", "model.hidden=100000000000"], "model.hidden is 100000000000: expected 2147483647 at most"),
        (
            ["--set", "analytics.release=[{ name = 'private', epsilon = 1e-20 }]"],
            "epsilon is 1e-20: expected",
        ),
        (["--out", "x" * 300], "x…: File name too long"),
        (["--out", "small.toml"], "small.toml exists and is not a run"),
        (["--out", "small.toml/below"], "cannot be written to: Not a directory"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(fedsim, scenario_file, tmp_path, arguments, message):
    done = fedsim("run", scenario_file, *arguments)
    assert done.status == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(fedsim, scenario_file, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    done = fedsim("run", scenario_file, "--out", "closed/run")
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attack", "{run}", "--set", "clients.lr=1"], "only attack.* can change after the training"),
        (["attack", "{run}", "--set", "attack.solver=magic"], "attack.solver.name is 'magic'"),
        (["attack", "nowhere"], "nowhere is not a finished run"),
        (["report", "nowhere"], "nowhere is not a finished run"),
        (["run", "quickstrat"], "no such scenario in the library"),
        (["run", "{run}/scenario.toml", "--sett", "seed=1"], "No such option '--sett'"),
        (["run"], "Missing argument 'SCENARIO'"),
        (["deploy", "quickstart", "--superlink", "here"], "--superlink here: expected HOST:PORT"),
        (["deploy", "quickstart", "--superlink", "http://h:1"], "--superlink http://h:1: expected HOST:PORT"),
        (
            ["deploy", "quickstart", "--root-certificates", "x.pem"],
            "expected --superlink HOST:PORT beside it",
        ),
        (["deploy", "quickstart", "--superlink", "h:1", "--root-certificates", "x"], "x is missing"),
        (["atack", "{run}"], "No such command 'atack'. (Did you mean one of: 'attack', 'data', 'watch'?)\n"),
    ],
)
def test_other_commands_mistakes(fedsim, run_copy, arguments, message):
    before = files_below(run_copy)
    done = fedsim(*(a.format(run=run_copy) for a in arguments))
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr
    assert files_below(run_copy) == before
