"""Runs that are killed and go on: the files they leave are those of a run that nobody killed."""

import errno
import gc
import json
import os
import resource
import shlex
import signal
import sys
import traceback
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam

from fedsim.core.errors import UserError
from fedsim.core.progress import silent
from fedsim.server.strategy import MeanFromSum
from fedsim.trusted.checkpoint import Checkpoint
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import ENGINES, INLINE, GivenGrid, Ray
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World, _loaded

ROUNDS = 12
PLAIN = ("federation.rounds=12", "federation.clients=4")
EVERYTHING = (
    "federation.rounds=12",
    "federation.clients=6",
    'federation.aggregation={ name = "masked", threshold = 0.9 }',
    "federation.server_model=updated",
    "federation.participation.rate=0.6",
    "clients.failures={ absent = 0.05, interrupted = 0.05, lost = 0.1 }",
    "clients.momentum=0.5",
    "clients.data_fraction=0.5",
    "clients.lr=0.001",
    "attack.solver=projection",
    "analytics.window=5",
    "analytics.late=0.2",
    "analytics.missing=0.1",
    'defences=[{ name = "local_dp", norm = 0.5, epsilon = 50.0 }, '
    '{ name = "central_dp", norm = 0.5, noise_multiplier = 0.01, noise_on = "model" }]',
)
"""Masks with void rounds, a model that learns, devices that fail, noise in every place."""

ADAPTIVE = (
    *PLAIN,
    "federation.server_model=updated",
    "federation.strategy={ name = 'fedadam', eta = 0.01 }",
    "clients.weighting=examples",
    "data.partition={ name = 'iid', sizes = { name = 'power_law', smallest = 4 } }",
)
"""A server with a memory, and clients of unequal sizes and weights."""

EVERY_ROUND, FIRST_AND_LAST = float("inf"), 1e-12


@pytest.fixture
def case(scenario_file, tmp_path):
    return scenario_file, tmp_path


@pytest.fixture
def pace(monkeypatch):
    """Sets which part of the time goes into checkpoints."""
    return lambda share: monkeypatch.setattr("fedsim.trusted.checkpoint._TIME_SHARE", share)


@pytest.fixture(autouse=True)
def _blank_page(monkeypatch):
    """Drawing takes longer than all the rest, and the page shows seconds, so it is not compared."""
    monkeypatch.setattr(
        "scenarios.run.runner.write_report", lambda directory: directory.report.write_text("page")
    )


def go(file, out, overrides=PLAIN, *, training=silent, solving=silent, engine=INLINE):
    """What `fedsim run --resume` does."""
    world = World.prepare(load_scenario(file, overrides))
    directory = RunDirectory.resume(out, world.scenario.to_toml())
    return run_scenario(world, directory, engine=engine, training=training, solving=solving)


def files_of(out):
    """Every file of a run and its bytes; without seconds, their page and their digest."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    files.pop("report.html")
    files.pop("pace.csv")
    digests = json.loads(files.pop("digests.json"))
    digests.pop("result.json")
    result = json.loads(files.pop("result.json"))
    for section in ("simulation", "disaggregation"):
        result[section].pop("seconds")
    result["disaggregation"].pop("cpu_seconds")
    return files, digests, result


def interrupt_at(step):
    def progress(done, total):
        if done == step:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("engine", [e for e in ENGINES.values() if e.can_resume], ids=lambda e: e.name)
@pytest.mark.parametrize("share", [EVERY_ROUND, FIRST_AND_LAST])
@pytest.mark.parametrize("overrides", [PLAIN, EVERYTHING, ADAPTIVE])
def test_an_interrupted_run_goes_on_to_the_same_files(case, pace, overrides, share, engine):
    """On every engine that says it can resume."""
    pace(share)
    file, folder = case
    run = partial(go, file, overrides=overrides, engine=engine())
    run(folder / "whole")
    for step in (1, 2, 7, 10, ROUNDS):
        with pytest.raises(KeyboardInterrupt):
            run(folder / "parts", training=interrupt_at(step))
    run(folder / "parts")
    assert files_of(folder / "parts") == files_of(folder / "whole")


@pytest.mark.parametrize("engine", [Ray(), GivenGrid(grid=None)], ids=lambda e: e.name)
def test_an_engine_that_cannot_resume_does_not_touch_a_checkpoint(scenario_file, tmp_path, engine):
    with pytest.raises(KeyboardInterrupt):
        go(scenario_file, tmp_path / "run", training=interrupt_at(3))
    before = (tmp_path / "run/checkpoint.zip").read_bytes()
    with pytest.raises(
        UserError, match=rf"cannot be resumed: the {engine.name} engine leaves no checkpoints"
    ):
        go(scenario_file, tmp_path / "run", engine=engine)
    assert (tmp_path / "run/checkpoint.zip").read_bytes() == before


def test_a_strategy_with_an_unknown_state_runs_but_is_not_resumed(
    fedsim, scenario_file, tmp_path, monkeypatch
):
    """Flower's FedAdam has moments and no way to hand them out."""
    monkeypatch.setattr(
        "scenarios.run.server.server_strategy",
        lambda *_: MeanFromSum(FedAdam(min_train_nodes=1, min_available_nodes=1, eta=1e-3)),
    )
    with monkeypatch.context() as patch:
        patch.setattr("scenarios.run.runner.attack_run", interrupt)
        done = fedsim("run", scenario_file.name)
    assert (done.status, done.stderr) == (
        130,
        "fedsim: interrupted; start again with: fedsim run small.toml --force\n",
    )
    assert not (tmp_path / "runs/small/checkpoint.zip").exists()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = fedsim("run", scenario_file.name, "--resume")
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "fedsim: --resume: the server strategy FedAdam does not say what it remembers between rounds: "
        "it needs the methods state() and load_state()\n"
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_interrupted_attack_does_not_train_again(scenario_file, tmp_path):
    go(scenario_file, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(scenario_file, tmp_path / "parts", solving=interrupt_at(4))
    rounds = []
    go(scenario_file, tmp_path / "parts", training=lambda done, total: rounds.append((done, total)))
    assert rounds == [(ROUNDS, ROUNDS)]
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_a_run_does_not_go_on_with_other_data(scenario_file, tmp_path):
    data = f'data={{ name = "cifar10", path = "{tmp_path}/some.npz" }}'
    overrides = (*PLAIN, data, "clients.dataset_size=8")
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x_train": rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8),
        "y_train": np.arange(40) % 10,
        "x_test": np.zeros((10, 32, 32, 3), dtype=np.uint8),
        "y_test": np.arange(10),
    }
    np.savez(tmp_path / "some.npz", **arrays)
    with pytest.raises(KeyboardInterrupt):
        go(scenario_file, tmp_path / "run", overrides, training=interrupt_at(7))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    arrays["x_train"][3, 5, 5, 0] ^= 1
    np.savez(tmp_path / "some.npz", **arrays)
    _loaded.cache_clear()
    with pytest.raises(UserError, match="run was started with other data than there are now"):
        go(scenario_file, tmp_path / "run", overrides)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_finished_run_has_no_checkpoint(finished_run):
    assert finished_run.is_finished
    assert not finished_run.checkpoint.exists()


def test_a_checkpoint_comes_back_as_it_was(scenario_file, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        go(scenario_file, tmp_path / "run", solving=interrupt_at(4))
    saved = Checkpoint.load(tmp_path / "run/checkpoint.zip")
    assert (saved.rounds, len(saved.devices), set(saved.strategy)) == (
        ROUNDS,
        4,
        {"participation", "answers", "history", "history-traffic"},
    )
    saved.save(tmp_path / "again.zip")
    again = Checkpoint.load(tmp_path / "again.zip")
    assert again.devices == saved.devices
    assert again.strategy == saved.strategy
    np.testing.assert_array_equal(again.model, saved.model)


def test_a_damaged_checkpoint_is_named(tmp_path):
    for content in (b"", b"PK"):
        (tmp_path / "checkpoint.zip").write_bytes(content)
        with pytest.raises(UserError, match=r"checkpoint\.zip: not a checkpoint"):
            Checkpoint.load(tmp_path / "checkpoint.zip")


def test_another_scenario_is_not_continued(scenario_file, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        go(scenario_file, tmp_path / "run", training=interrupt_at(3))
    with pytest.raises(
        UserError, match=r"another scenario, with the line 'lr = 0\.01' instead of 'lr = 0\.02'"
    ):
        go(scenario_file, tmp_path / "run", [*PLAIN, "clients.lr=0.02"])


def in_child(action, *, kill_at=None, where=""):
    """Run an action in a fork of this process that SIGKILLs itself at its `kill_at`-th event.

    An event is a call or a return of any function, Python's or C's, in a file whose path has `where` in it.
    Returns the number of events, or None if the child was killed.
    """
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        # What earlier tests left behind is not this process's to tidy up: Ray's remains crash it.
        gc.freeze()
        try:
            events, me = count(), os.getpid()

            def on_event(frame, event, argument):
                # Worker processes inherit this function; they are not the ones to die.
                if where in frame.f_code.co_filename and os.getpid() == me and next(events) == kill_at:
                    os.kill(me, signal.SIGKILL)

            sys.setprofile(on_event)
            action()
            sys.setprofile(None)
            os.write(writing, str(next(events)).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    assert os.waitstatus_to_exitcode(status) == 0
    return int(answer)


@pytest.mark.parametrize(
    ("where", "overrides", "share"),
    [
        ("", PLAIN, EVERY_ROUND),
        ("fedsim/records.py", PLAIN, FIRST_AND_LAST),
        ("zipfile.py", PLAIN, EVERY_ROUND),
        pytest.param("", EVERYTHING, EVERY_ROUND, marks=pytest.mark.slow),
        pytest.param("fedsim/records.py", EVERYTHING, EVERY_ROUND, marks=pytest.mark.slow),
        pytest.param("fedsim/core/files.py", EVERYTHING, FIRST_AND_LAST, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_random_points_ends_in_the_same_files(case, pace, where, overrides, share):
    pace(share)
    file, folder = case
    rng = np.random.default_rng(0)
    events = in_child(lambda: go(file, folder / "whole", overrides), where=where)
    run = partial(go, file, folder / "parts", overrides)
    killed = [in_child(run, kill_at=rng.integers(events), where=where) is None for _ in range(8)]
    assert sum(killed) > 2
    run()
    assert files_of(folder / "parts") == files_of(folder / "whole")


def test_a_full_disk_ends_the_run_and_room_lets_it_go_on(scenario_file, tmp_path):
    """Real writes fail: the process may write no file longer than half the transcript."""
    go(scenario_file, tmp_path / "whole")
    half = (tmp_path / "whole/transcript/aggregates.npy").stat().st_size // 2

    def without_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (half, resource.RLIM_INFINITY))
        with pytest.raises(OSError) as caught:
            go(scenario_file, tmp_path / "parts")
        assert caught.value.errno == errno.EFBIG

    in_child(without_room)
    go(scenario_file, tmp_path / "parts")
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_a_full_disk_is_one_line(fedsim, scenario_file, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedsim.records.TranscriptWriter.append", fail)
    done = fedsim("run", scenario_file.name, "--force")
    assert (done.status, done.stdout) == (3, "")
    assert done.stderr == (
        "fedsim: runs/small: No space left on device; continue with: fedsim run small.toml --resume\n"
    )


def test_ctrl_c_says_how_to_go_on(fedsim, scenario_file, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("scenarios.run.runner.attack_run", interrupt)
        done = fedsim("run", scenario_file.name, "--out", "my run", "--set", "seed=5")
    assert (done.status, done.stdout) == (130, "")
    advice = (
        "fedsim: interrupted; continue with: fedsim run small.toml --out 'my run' --set seed=5 --resume\n"
    )
    assert done.stderr == advice
    assert (tmp_path / "my run/checkpoint.zip").exists()
    _, command = advice.split(": fedsim ")
    assert fedsim(*shlex.split(command)).status == 0
    assert not (tmp_path / "my run/checkpoint.zip").exists()


def test_ctrl_c_elsewhere_is_one_line(fedsim, finished_run, monkeypatch):
    monkeypatch.setattr("scenarios.run.runner.attack_run", interrupt)
    done = fedsim("attack", finished_run.path)
    assert (done.status, done.stdout, done.stderr) == (130, "", "fedsim: interrupted\n")


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_resuming_a_finished_run_changes_nothing(fedsim, scenario_file, tmp_path):
    first = fedsim("run", scenario_file, "--json")
    before = files_of(tmp_path / "runs/small")
    again = fedsim("run", scenario_file, "--json", "--resume")
    assert (again.status, again.stderr) == (0, "fedsim: runs/small is complete\n")
    assert again.stdout == first.stdout
    assert files_of(tmp_path / "runs/small") == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "runs/small holds an interrupted run: add --resume to continue it, or --force to replace it"),
        (["--resume", "--force"], "--resume continues a run and --force replaces it"),
        (["--resume", "--engine", "ray"], "--resume: the ray engine leaves no checkpoints to continue from"),
        (["--resume", "--set", "seed=4"], "another scenario, with the line 'seed = 3' instead of 'seed = 4'"),
        (["--resume", "--out", "small.toml"], "small.toml exists and is not a run"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(fedsim, scenario_file, tmp_path, arguments, message):
    with pytest.raises(KeyboardInterrupt):
        go(scenario_file, tmp_path / "runs/small", (), training=interrupt_at(1))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = fedsim("run", scenario_file, *arguments)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
