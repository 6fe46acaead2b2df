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
    ONES,
    ONES_CEILING,
    ONES_GUESS,
    OPTIONAL,
    PERPLEXITY,
    SINGLED_OUT,
    SINGLED_OUT_CEILING,
    SINGLED_OUT_ORACLE,
    UNIGRAM,
    UTILITY,
    WINDOW,
    WORDS,
    WORDS_GUESS,
    WORDS_ORACLE,
    WORDS_SUM,
)
from scenarios.evaluate.outcome import Figure, Outcome, columns, numbers
from scenarios.evaluate.recommendation import in_short, price, recommendation
from scenarios.evaluate.sentences import sentence
from scenarios.evaluate.trade_offs import frontier, trade_offs
from scenarios.evaluate.verdict import Form, Verdict
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
        "leak_at_best": SINGLED_OUT_CEILING,
        "leak_of_a_perfect_attack": SINGLED_OUT_ORACLE,
        "guess": ONES_GUESS,
        "attack": ONES,
        "ceiling": ONES_CEILING,
        "accuracy": ACCURACY,
        "error": COUNT_ERROR,
        "messages": MESSAGES,
        "perplexity": PERPLEXITY,
        "unigram": UNIGRAM,
        "words": WORDS,
        "words_guess": WORDS_GUESS,
        "words_of_the_sum": WORDS_SUM,
        "words_at_best": WORDS_ORACLE,
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
    assert {*LEAKAGE, *UTILITY} - OPTIONAL <= set(numbers(read_result(finished_run)))


def judged(name, *, guess=0.2, attack=0.98, ceiling=0.98, spread=0.0, **changes):
    """An outcome with shares of the participations found, and other figures that hardly matter."""
    rest = {"leak": (0.9, 0.0), "accuracy": (0.5, 0.0), "error": (0.0, 0.0), "messages": (5.0, 0.0)}
    ones = {"guess": guess, "attack": attack, "ceiling": ceiling}
    found = {key: (value, spread) for key, value in ones.items() if value is not None}
    return outcome(name, **{**rest, **found, **changes})


@pytest.mark.parametrize(
    ("figures", "form"),
    [
        ({"attack": 0.22, "ceiling": 0.29}, Form.STOPPED),
        ({"attack": 0.29, "ceiling": 0.31}, Form.HELD),
        ({"attack": 0.22, "ceiling": 1.0}, Form.HELD),
        ({"attack": 0.22, "ceiling": None}, Form.HELD),
        ({"attack": 0.31, "ceiling": 0.31}, Form.LEAKS),
        ({"attack": 0.9, "ceiling": None}, Form.LEAKS),
        ({"guess": 1.0, "attack": 1.0, "ceiling": 1.0}, Form.LEAKS),
    ],
)
def test_a_verdict_has_three_forms(figures, form):
    assert Verdict.of(judged("x", **figures)).form == form


def test_results_without_the_figures_have_no_verdict():
    old = outcome("x", leak=(0.0, 0.0), accuracy=(0.5, 0.0))
    assert Verdict.of(old) is None
    assert "there is no verdict" in sentence(old, judged("none"))


def test_sentences_say_what_the_figures_say():
    none = judged("none", leak=(1.0, 0.0))
    assert sentence(judged("x", attack=0.22, ceiling=0.25, leak=(0.0, 0.0), accuracy=(0.4, 0.0)), none) == (
        "x stopped the attack: at best 25 % of the participations can be found (our attack 22 %, guess 20 %)"
        "; 0 % of the clients are singled out instead of 100 %; cost: -10.0 points of test accuracy."
    )
    assert sentence(judged("x", attack=0.22, ceiling=0.97), none).startswith(
        "x held against our attack, which is not to be relied on: 22 % of the participations are found "
        "(guess 20 %), but the evidence gives up to 97 %; 90 % of the clients are singled out"
    )
    assert "(guess 20 %), but no ceiling was computed;" in sentence(
        judged("x", attack=0.22, ceiling=None), none
    )
    leaks = sentence(judged("x", attack=0.55, error=(1.5, 0.0), messages=(7.0, 0.0)), none)
    assert "x leaks: 55 % of the participations are found (guess 20 %, ceiling 98 %) instead of 98 %" in leaks
    assert "an error of 1.5 per count, +2.0 messages per round" in leaks
    assert "leaks: the counts alone give 60 % of the participations" in sentence(judged("x", guess=0.6), none)
    assert "cost: none measured" in sentence(judged("x"), none)
    grouped = judged("x", leak=(0.0, 0.0), leak_of_a_perfect_attack=(0.0, 0.0))
    assert "without it; no attack can single out a client, because" in sentence(grouped, none)


def test_a_gain_is_no_cost():
    none = judged("none")
    better = judged("x", attack=0.22, ceiling=0.25, accuracy=(0.6, 0.0), messages=(3.0, 0.0))
    assert sentence(better, none).endswith(
        "cost: none measured; gain: +10.0 points of test accuracy, -2.0 messages per round."
    )
    assert in_short(better, none).endswith(
        "no measured cost, and a gain: +10.0 points of test accuracy, -2.0 messages per round"
    )


def test_text_is_measured_by_perplexity_of_which_less_is_better():
    none = judged("none", perplexity=(40.0, 0.0), unigram=(80.0, 0.0))
    worse = judged("worse", perplexity=(60.0, 0.0), unigram=(80.0, 0.0))
    better = judged("better", perplexity=(20.0, 0.0), unigram=(80.0, 0.0))
    # Fewer words are easier to predict, also for a unigram model: this one lost something.
    small = judged("small", perplexity=(30.0, 0.0), unigram=(50.0, 0.0))
    said = "test perplexity 60 (unigram 80) instead of 40 (unigram 80)"
    assert f"cost: {said}." in sentence(worse, none)
    assert "cost: none measured; gain: test perplexity 20 (unigram 80)" in sentence(better, none)
    assert "cost: test perplexity 30 (unigram 50) instead of 40 (unigram 80)." in sentence(small, none)
    assert price(better) < price(none) < price(small) < price(worse)
    assert PERPLEXITY in columns([none]) and PERPLEXITY not in columns([judged("images")])


def test_words_stand_beside_guess_sum_and_oracle():
    figures = {"words_guess": (0.1, 0.0), "words_of_the_sum": (0.2, 0.0), "words_at_best": (1.0, 0.0)}
    none = judged("none", words=(0.98, 0.0), **figures)
    said = sentence(judged("x", words=(0.3, 0.0), **figures), none)
    assert "with F1 0.30 (guess 0.10, sum 0.20, true update 1.00) instead of 0.98; cost" in said


def test_doubts_are_said():
    none = judged("none")
    assert "(uncertain: wide intervals)" in sentence(judged("x", attack=0.4, spread=0.2), none)
    assert "(uncertain" not in sentence(judged("x", attack=0.4, spread=0.05), none)
    assert "(uncertain: only one seed)" in sentence(judged("x", attack=0.4, spread=None), none)
    assert "(uncertain: wide" in sentence(judged("x", attack=0.2, ceiling=0.35, spread=0.1), none)


def test_fewer_counts_have_a_price():
    none = judged("none", window=(6.0, None), missing=(0.0, None))
    fewer = judged("x", window=(30.0, None), missing=(0.25, None))
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
    # A defence that only our attack does not get through is where its ceiling is.
    weak = outcome("weak", leak=(0.0, None), leak_at_best=(0.9, None), accuracy=(0.45, None))
    assert [o.name for o in frontier([*outcomes, weak])] == ["safe", "good", "none"]


def test_of_equals_the_cheapest_is_on_the_frontier():
    cheap = outcome("cheap", leak=(0.0, None), accuracy=(0.4, None), error=(0.0, None))
    dear = outcome("dear", leak=(0.0, None), accuracy=(0.4, None))  # no counts are published
    assert [o.name for o in frontier([dear, cheap])] == ["cheap"]


def test_the_recommendation_is_the_cheapest_that_stops_it():
    none = judged("none")
    stops = {"attack": 0.22, "ceiling": 0.25}
    dear = judged("noise", **stops, accuracy=(0.3, 0.0))
    cheap = judged("batches", **stops, accuracy=(0.49, 0.0))
    held = judged("two bits", attack=0.22, ceiling=0.97)
    said = recommendation([none, held, dear, cheap])
    assert said.startswith("Choose batches: it stops the attack")
    assert said.endswith("At a higher price, also: noise.")
    grouped = judged("groups", leak=(0.0, 0.0), leak_of_a_perfect_attack=(0.0, 0.0))
    assert "Choose groups: no attack can single out a client" in recommendation([none, held, grouped])
    assert "nobody can be singled out, whatever the attack" in in_short(grouped, none)
    assert in_short(held, none).startswith("two bits: held against our attack, ceiling not low (97 %)")
    assert in_short(dear, none) == "noise: stops it; a cost: -20.0 points of test accuracy"
    assert "two bits held, but a better attack could do more" in recommendation([none, held])
    assert recommendation([none, judged("x")]) == "No defence here stops the attack."
    assert "nothing to recommend" in recommendation([none, outcome("failed")])


def test_intervals_of_shares_stay_within_0_and_1():
    sure = Figure(0.98, 0.3)
    assert sure.interval == (0.98 - 0.3, 1.0)
    assert sure.shown(share=True) == "0.980 [0.68, 1.00]"
    assert sure.shown(share=False) == "0.980 ± 0.300"
    drawn = json.dumps(trade_offs([outcome("x", leak=(0.02, 0.3), accuracy=(0.9, 0.5))], "accuracy"))
    assert '"low": 0.0' in drawn
    assert '"above": 1.0' in drawn


def test_no_two_defences_look_the_same():
    many = [outcome(f"d{i}", leak=(0.1, None), accuracy=(0.5, None)) for i in range(20)]
    marks = trade_offs(many, "accuracy")["layer"][-1]["encoding"]
    looks = zip(marks["color"]["scale"]["range"], marks["shape"]["scale"]["range"], strict=True)
    assert len(set(looks)) == 20


def test_the_command_leaves_a_table_and_a_page_with_links(fedsim, scenario_file, tmp_path):
    (tmp_path / "evaluation.toml").write_text(EVALUATION.replace("seeds = 2", "seeds = 1"))
    done = fedsim("evaluate", "evaluation.toml", "--workers", 1)
    assert (done.status, done.stderr) == (0, "")
    assert "batches: leaks" in done.stdout
    assert "no attack can single out a client" in done.stdout
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
    def fail(*rest, **options):
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


@pytest.mark.parametrize("name", ["defences", "defences_cifar10", "defences_words"])
def test_the_library_holds_evaluations(name, fedsim):
    plan = Evaluation.load(LIBRARY / f"{name}.toml")
    assert len(plan.sweep.points) == 3 * len(plan.points)
    listed = json.loads(fedsim("list", "--json").stdout)
    assert name in listed["evaluations"]
    assert name not in listed["scenarios"]
