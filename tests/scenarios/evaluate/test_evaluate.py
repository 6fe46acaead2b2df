"""Evaluations: which points there are, what the table says, and the words for it."""

import csv
import json

import pytest

import scenarios.run.runner
from scenarios.evaluate.evaluation import Evaluation
from scenarios.evaluate.figures import (
    ACCURACY,
    COUNT_ERROR,
    LEAKAGE,
    MESSAGES,
    MISSING,
    SINGLED_OUT,
    UTILITY,
    WINDOW,
)
from scenarios.evaluate.outcome import Figure, Outcome, numbers
from scenarios.evaluate.page import frontier
from scenarios.evaluate.sentences import sentence
from scenarios.run.runner import read_result
from scenarios.run.scenario import LIBRARY

EVALUATION = """
title = "Small evaluation"
base = "small.toml"
seeds = 2
[[defences]]
name = "no counts"
set.analytics.collection = "off"
[[defences]]
name = "batches"
set.federation.participation = { name = "batches", batch_size = 3 }
"""


def outcome(name, **figures):
    names = {
        "window": WINDOW,
        "missing": MISSING,
        "leak": SINGLED_OUT,
        "accuracy": ACCURACY,
        "error": COUNT_ERROR,
        "messages": MESSAGES,
    }
    return Outcome(name, {names[key]: Figure(*value) for key, value in figures.items()}, ())


def test_points_are_the_base_and_every_defence_with_every_seed(tmp_path, scenario_file):
    (tmp_path / "evaluation.toml").write_text(EVALUATION)
    plan = Evaluation.load(tmp_path / "evaluation.toml", ["federation.rounds=8"])
    assert {name: len(points) for name, points in plan.points.items()} == {
        "none": 2,
        "no counts": 2,
        "batches": 2,
    }
    assert len(plan.sweep.points) == 6
    none, off, batches = (points[1].settings for points in plan.points.values())
    assert {s.seed for s in (none, off, batches)} == {2}
    assert {s.federation.rounds for s in (none, off, batches)} == {8}
    assert (none.analytics.collection.name, off.analytics.collection.name) == ("windows", "off")
    assert batches.federation.participation.batch_size == 3


def test_intervals_are_students():
    assert Figure.of([0.25]) == Figure(0.25, None)
    three = Figure.of([1.0, 2.0, 3.0])
    assert three.mean == 2
    assert three.half_width == pytest.approx(4.303 / 3**0.5, abs=1e-3)


def test_messages_are_added_up(finished_run):
    result = read_result(finished_run)
    found, messages = numbers(result), result.messages
    assert found[MESSAGES] == messages.training + messages.masking + messages.telemetry > 0
    assert found["messages.training"] == messages.training


def test_numbers_are_numbers(finished_run):
    found = numbers(read_result(finished_run))
    assert {type(value) for value in found.values()} == {float}
    assert not {"seed", "schema_version", "disaggregation.pseudonymous", "disaggregation.solver"} & set(found)


def test_the_table_shows_figures_that_results_have(finished_run):
    assert {*LEAKAGE, *UTILITY} <= set(numbers(read_result(finished_run)))


def test_sentences_say_what_the_figures_say():
    none = outcome("none", leak=(1.0, 0.0), accuracy=(0.5, 0.01), error=(0.0, 0.0), messages=(5.0, 0.0))
    stopped = outcome("noise", leak=(0.0, 0.0), accuracy=(0.4, 0.0), error=(0.0, 0.0), messages=(5.0, 0.0))
    assert sentence(stopped, none) == (
        "noise stops the attack: 0 % of the clients are singled out instead of 100 %; "
        "cost: -10.0 points of test accuracy."
    )
    weak = outcome("x", leak=(0.5, 0.1), accuracy=(0.5, 0.0), error=(1.5, 0.0), messages=(7.0, 0.0))
    assert "weakens the attack: 50 %" in sentence(weak, none)
    assert "an error of 1.5 per count, +2.0 messages per round" in sentence(weak, none)
    unsure = outcome("x", leak=(0.5, 0.6), accuracy=(0.5, 0.0), messages=(5.0, 0.0))
    assert "(uncertain: wide intervals); cost: no counts are published" in sentence(unsure, none)
    hardly = outcome("x", leak=(0.03, 0.1), accuracy=(0.5, 0.0), messages=(5.0, 0.0))
    assert "stops the attack: 3 % of the clients are singled out instead of 100 % (uncertain" in sentence(
        hardly, none
    )
    maybe = outcome("x", leak=(0.97, 0.1), accuracy=(0.5, 0.0), messages=(5.0, 0.0))
    assert (
        "does not stop the attack: 97 % of the clients are singled out instead of 100 % (uncertain"
        in sentence(maybe, none)
    )
    once = outcome("x", leak=(0.5, None), accuracy=(0.5, 0.0), messages=(5.0, 0.0))
    assert "instead of 100 % (uncertain: only one seed)" in sentence(once, none)
    useless = outcome("x", leak=(1.0, 0.0), accuracy=(0.5, 0.0), error=(0.0, 0.0), messages=(5.0, 0.0))
    assert "does not stop the attack: 100 % of the clients are singled out instead of 100 %; " in sentence(
        useless, none
    )
    assert "cost: none measured" in sentence(useless, none)
    assert "has nothing to stop" in sentence(none, stopped)


def test_fewer_counts_have_a_price():
    rest = {"leak": (1.0, None), "accuracy": (0.5, None), "error": (0.0, None), "messages": (5.0, None)}
    none = outcome("none", **rest, window=(6.0, None), missing=(0.0, None))
    fewer = outcome("x", **rest, window=(30.0, None), missing=(0.25, None))
    assert "a count for 30 rounds instead of 6, 25 % of the rounds without a count" in sentence(fewer, none)


def test_the_frontier_is_what_nothing_beats():
    places = {
        "none": (1.0, 0.5),
        "good": (0.2, 0.45),
        "bad": (0.6, 0.4),
        "safe": (0.0, 0.1),
        "same": (0.2, 0.3),
    }
    outcomes = [outcome(n, leak=(x, None), accuracy=(y, None)) for n, (x, y) in places.items()]
    assert [o.name for o in frontier(outcomes)] == ["safe", "good", "none"]


def test_the_command_leaves_a_table_and_a_page_with_links(fedsim, scenario_file, tmp_path):
    (tmp_path / "evaluation.toml").write_text(EVALUATION.replace("seeds = 2", "seeds = 1"))
    done = fedsim("evaluate", "evaluation.toml", "--workers", 1)
    assert (done.status, done.stderr) == (0, "")
    assert "batches stops the attack: 0 % of the clients are singled out instead of 100 %" in done.stdout
    folder = tmp_path / "runs/evaluation"
    with (folder / "evaluation.csv").open(newline="") as file:
        rows = {(row["defence"], row["figure"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert rows["none", SINGLED_OUT] == 1
    assert rows["batches", SINGLED_OUT] == 0
    page = (folder / "evaluation.html").read_text()
    points = sorted((folder / "points").iterdir())
    assert len(points) == 3
    for point in points:
        assert f'href="points/{point.name}/report.html"' in page
        assert (point / "report.html").exists()
    again = fedsim("evaluate", "evaluation.toml", "--workers", 1, "--json")
    assert {(row["defence"], row["figure"]): row["mean"] for row in json.loads(again.stdout)} == rows


def test_a_defence_that_fails_is_said_to(fedsim, scenario_file, tmp_path, monkeypatch):
    def fail(*rest):
        raise ValueError("no power")

    monkeypatch.setattr(scenarios.run.runner, "simulate", fail)
    (tmp_path / "evaluation.toml").write_text(EVALUATION)
    done = fedsim("evaluate", "evaluation.toml", "--workers", 1)
    assert (done.status, done.stderr) == (0, "")
    assert "no counts failed: ValueError: no power" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = 2", "seeds = 0"), "seeds is 0: expected greater than 0"),
        (('base = "small.toml"', ""), "base: missing"),
        (('"small.toml"', '"smal.toml"'), "smal.toml: no such file"),
        (('name = "batches"\nset', 'name = "no counts"\nset'), "each name must be unique"),
        (("batch_size = 3", "size = 3"), "federation.participation.size: unknown key"),
        (("batch_size = 3", "batch_size = 7"), "expected at most the 0 batches of 7 that 6 clients make"),
        (("set.analytics.collection", "analytics.collection"), "defences.0.analytics: unknown key"),
        (('set.analytics.collection = "off"', "set = {}"), "defences.0.set is {}"),
        (
            ('set.analytics.collection = "off"', "set.seed = 7"),
            "sets the seed, but all defences share the same seeds",
        ),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(fedsim, scenario_file, tmp_path, change, message):
    (tmp_path / "evaluation.toml").write_text(EVALUATION.replace(*change))
    done = fedsim("evaluate", "evaluation.toml")
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"evaluation.toml", "small.toml"}


def test_seeds_are_the_files(fedsim, scenario_file, tmp_path):
    (tmp_path / "evaluation.toml").write_text(EVALUATION)
    done = fedsim("evaluate", "evaluation.toml", "--set", "seed=7")
    assert (done.status, done.stdout) == (2, "")
    assert "--set seed=7: evaluation.toml uses the seeds 1 to 2" in done.stderr


@pytest.mark.parametrize("name", ["defences", "defences_cifar10"])
def test_the_library_holds_evaluations(name, fedsim):
    plan = Evaluation.load(LIBRARY / f"{name}.toml")
    assert len(plan.sweep.points) == 3 * len(plan.points)
    listed = json.loads(fedsim("list", "--json").stdout)
    assert name in listed["evaluations"]
    assert name not in listed["scenarios"]
