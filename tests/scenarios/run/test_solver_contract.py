"""A solver that needs counts and a scenario that publishes none: one line, before any training."""

import shutil

import pytest

from fedsim.core.errors import UserError
from scenarios.run.scenario import load_scenario
from tests.helpers.runs import reseal

REFUSAL = "attack.solver: projection needs counts, and there are none; expected auto or blind"
OFF = "analytics.collection=off"


@pytest.mark.parametrize(
    "silence", [OFF, "analytics.missing=1", 'analytics.release=[{name="drop",fraction=1}]']
)
def test_a_scenario_without_counts_refuses_solvers_that_need_them(scenario_file, silence):
    for solver in ("projection", "highs", "gurobi", "message_passing"):
        with pytest.raises(UserError, match=f"attack.solver: {solver} needs counts") as refused:
            load_scenario(scenario_file, [silence, f"attack.solver={solver}"])
        assert "\n" not in str(refused.value)
    for solver in ("auto", "blind"):
        assert load_scenario(scenario_file, [silence, f"attack.solver={solver}"])


@pytest.mark.parametrize(
    "silence", ["analytics.missing=0.9", 'analytics.release=[{name="drop",fraction=0.9}]']
)
def test_some_counts_are_enough(scenario_file, silence):
    assert load_scenario(scenario_file, [silence, "attack.solver=projection"])


EVALUATION = """
title = "No counts"
base = "small.toml"
seeds = 1
[[defences]]
name = "no counts"
set.analytics.collection = "off"
"""
SWEEP = """
title = "Collections and solvers"
base = "small.toml"
[vary]
analytics.collection = ["windows", "off"]
attack.solver = ["auto", "projection"]
"""
PLANTED = """
title = "Planted"
[planted]
clients = 4
rounds = 8
solver = "projection"
[vary]
known = [1.0, 0.0]
"""


@pytest.mark.parametrize(
    ("command", "content", "options"),
    [
        ("run", None, ["--set", OFF, "--set", "attack.solver=projection"]),
        ("evaluate", EVALUATION, ["--set", "attack.solver=projection"]),
        ("sweep", SWEEP, []),
        ("sweep", PLANTED, []),
    ],
)
@pytest.mark.usefixtures("scenario_file")
def test_commands_refuse_and_leave_nothing(fedsim, tmp_path, command, content, options):
    file = tmp_path / "small.toml"
    if content is not None:
        file = tmp_path / "points.toml"
        file.write_text(content)
    done = fedsim(command, file, *options, "--out", "there")
    assert (done.status, done.stdout) == (2, "")
    assert REFUSAL.removeprefix("attack.") in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "there").exists()


def test_a_second_attack_refuses_and_leaves_the_run_as_it_was(fedsim, scenario_file, tmp_path):
    assert fedsim("run", scenario_file, "--set", OFF, "--out", "run").status == 0
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    done = fedsim("attack", tmp_path / "run", "--set", "attack.solver=projection")
    assert (done.status, done.stdout) == (2, "")
    assert REFUSAL in done.stderr and len(done.stderr.splitlines()) == 1
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_counts_that_turn_out_to_be_missing_are_one_line(fedsim, finished_run, tmp_path):
    """A release policy may leave nothing: that shows only when the attack reads the file."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    counts = tmp_path / "run/counts.csv"
    header, *rows = counts.read_text().splitlines()
    counts.write_text("\n".join([header, *(row.rpartition(",")[0] + "," for row in rows)]) + "\n")
    reseal(tmp_path / "run")
    done = fedsim("attack", tmp_path / "run", "--set", "attack.solver=highs", "--force")
    assert (done.status, done.stdout) == (2, "")
    assert "solver: highs needs counts, and there are none" in done.stderr
    assert len(done.stderr.splitlines()) == 1
