"""Training curves in other tools."""

import sys
from types import SimpleNamespace

import pytest

from scenarios.cli import TRACKABLE
from scenarios.run.directory import RunDirectory
from scenarios.run.history import read_curve
from scenarios.run.scenario import load_scenario
from scenarios.run.trackers import TRACKERS, tracked

POINTS = [(r, {"round": r, "test_loss": 2.0 - r / 10, "seconds": 0.1 + r}) for r in (0, 5)]


def test_the_command_offers_every_tracker():
    assert set(TRACKABLE) == set(TRACKERS)


def test_tensorboard_reads_the_curves_of_a_run(fedsim, scenario_file):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert fedsim("run", scenario_file, "--out", "run", "--track", "tensorboard", "--json").status == 0
    directory = RunDirectory(scenario_file.parent / "run")
    events = EventAccumulator(str(directory.tensorboard))
    events.Reload()
    rows = read_curve(directory.history)
    for column in ("test_loss", "test_accuracy", "bytes_sent"):
        scalars = events.Scalars(column)
        assert [event.step for event in scalars] == [row["round"] for row in rows]
        assert [event.value for event in scalars] == pytest.approx([row[column] for row in rows])
    # A run with these files is still a run, and can be replaced.
    assert fedsim("run", scenario_file, "--out", "run", "--force", "--json").status == 0
    assert not directory.tensorboard.exists()


@pytest.mark.parametrize("name", TRACKABLE)
def test_a_tool_that_is_not_installed_is_named(fedsim, scenario_file, monkeypatch, name):
    module = {"tensorboard": "torch.utils.tensorboard"}.get(name, name)
    monkeypatch.setitem(sys.modules, module, None)
    done = fedsim("run", scenario_file, "--out", "run", "--track", name)
    assert done.status == 2
    assert f"--track {name}: the package {TRACKERS[name].package} is not installed" in done.stderr
    assert not (scenario_file.parent / "run/scenario.toml").exists()


def test_mlflow_and_wandb_get_every_point(scenario_file, tmp_path, monkeypatch):
    """With stand-ins that note the calls: neither has to be installed."""
    calls: list = []
    mlflow = SimpleNamespace(
        start_run=lambda run_name: calls.append(("start", run_name)),
        log_text=lambda text, file: calls.append(("settings", file)),
        log_metrics=lambda values, step: calls.append((step, values)),
        end_run=lambda: calls.append("end"),
    )
    run = SimpleNamespace(
        log=lambda values, step: calls.append((step, values)), finish=lambda: calls.append("end")
    )
    wandb = SimpleNamespace(
        init=lambda project, name, config: (
            calls.append(("start", name, config["federation"]["rounds"])) or run
        )
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    scenario, directory = load_scenario(scenario_file), RunDirectory(tmp_path / "run")
    with tracked(["mlflow", "wandb"], scenario, directory) as listeners:
        for done, figures in POINTS:
            for listener in listeners:
                listener(done, figures)
    points = [(done, {"test_loss": row["test_loss"], "seconds": row["seconds"]}) for done, row in POINTS]
    assert calls == [
        ("start", "run"), ("settings", "scenario.toml"), ("start", "run", 24),
        points[0], points[0], points[1], points[1], "end", "end",
    ]  # fmt: skip
