"""Forecasts: the counting by hand, and the planted problems against full simulations."""

import json
from dataclasses import replace

import pytest

from scenarios.forecast.forecast import CurvePoint, Forecast, Setting, compared, forecast
from scenarios.planted import Planted
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World


def curve(*points, clients=10):
    return Forecast(Setting(clients=clients), tuple(CurvePoint(r, f, "planted") for r, f in points), 1.0)


def test_marks_lie_between_the_points():
    found = curve((10, 0.0), (20, 0.4), (30, 0.6), (40, 1.0))
    assert (found.first, found.half, found.nearly_all) == (13, 25, 39)
    assert curve((10, 0.0), (20, 0.3)).half is None


def test_what_counts_alone_give_away():
    """With counts of single rounds everything is known; in pairs, 0 and 2 are, and 1 is not."""
    every = Setting(clients=100, rate=0.5, window=1)
    assert every.exposed_by_counts(2) == pytest.approx(1 - 0.25)
    pairs = Setting(clients=100, rate=0.5, window=2)
    assert pairs.exposed_by_counts(2) == pytest.approx(0.25)
    assert pairs.exposed_by_counts(4) == pytest.approx(0.5**2 - 0.25**2)
    assert Setting(clients=100, rate=0.5, window=2, known=0.5).exposed_by_counts(2) == pytest.approx(0.125)
    assert Setting(clients=100, rate=0.5, window=2, counts_noise=0.1).exposed_by_counts(2) == 0


def test_what_counts_alone_give_away_is_what_the_attack_finds():
    """Fewer rounds than clients: the attack can only read the counts."""
    setting, found = Setting(clients=40, rate=0.3, window=2), []
    for seed in range(20):
        truth, recovery = Planted(clients=40, rounds=8, rate=0.3, window=2, seed=seed).solve()
        exposed = (recovery.outcome == "proved") & truth.participation.any(axis=0)
        found.append(exposed.mean())
    assert sum(found) / 20 == pytest.approx(setting.exposed_by_counts(8), abs=0.02)


def test_problems_that_differ_in_rounds_begin_alike():
    short, long = (Planted(clients=5, rounds=rounds, noise_sd=0.1).plant() for rounds in (10, 20))
    assert (long[0].participation[:10] == short[0].participation).all()
    assert (long[1].aggregates[:10] == short[1].aggregates).all()


def test_many_clients_are_scaled_and_it_is_said():
    large, small = Setting(clients=640, rate=0.1), Setting(clients=64, rate=0.1)
    assert large.plant(1.5, seed=1) == small.plant(1.5, seed=1)
    noisy = Setting(clients=240, rate=0.2, noise=1.0, dim=1000)
    assert (noisy.plant(2, seed=1).clients, noisy.plant(2, seed=1).dim) == (24, 100)
    sparse = forecast(Setting(clients=10_000, rate=0.001))
    assert sparse.half is None
    assert "counting up to 10000 rounds only" in sparse.rests_on()


def test_the_clients_of_a_whole_planet_can_be_counted():
    found = forecast(Setting(clients=2 * 10**9, rate=1e-9))
    assert (found.first, len(found.curve)) == (None, 20)


def test_the_ceiling_is_no_lower_than_the_attack():
    found = forecast(Setting(clients=12, rate=0.3, window=4))
    by_attack = {point.rounds: point.fraction for point in found.curve}
    assert all(point.fraction >= by_attack.get(point.rounds, 0.0) for point in found.ceiling)
    assert found.ceiling[-1].fraction >= 0.95
    assert found.half_at_best <= found.half


def test_half_at_best_is_no_later_than_the_attack():
    """Counting interpolates between its points; the ceiling takes the planted problems as they are."""
    found = curve((10, 0.0), (20, 1.0))
    assert found.half == 15
    assert found.half_at_best is None
    assert replace(found, ceiling=(CurvePoint(18, 0.9, "planted"),)).half_at_best == 15
    assert replace(found, ceiling=(CurvePoint(9, 0.9, "planted"),)).half_at_best == 9


def test_one_client_is_exposed_no_later_than_half_of_all():
    found = curve((1, 0.0), (4, 0.7), clients=1)
    assert found.first == found.half == 4


def test_sentences():
    early, late, never = curve((10, 0.0), (20, 1.0)), curve((10, 0.0), (40, 1.0)), curve((10, 0.1))
    said = "window=50 delays the exposure of half of the clients by 10 rounds"
    assert compared(early, late, "window=50") == said
    assert "exposes half of the clients 10 rounds earlier" in compared(late, early, "x")
    failed = "our attack exposes less than half of the clients within the rounds tried"
    assert compared(early, never, "x") == f"with x, {failed}"
    assert (
        compared(never, early, "x") == f"x exposes half of the clients after 15 rounds; without it, {failed}"
    )
    at_best = replace(never, ceiling=(CurvePoint(10, 0.9, "planted"),))
    assert compared(early, at_best, "x") == f"with x, {failed}; at best 10 rounds are enough"


def test_counting_alone_is_no_failed_attack():
    """With so few clients in a round no smaller problem is like the larger one."""
    counted = replace(curve((10, 0.0), (20, 0.1)), setting=Setting(clients=1000, rate=0.02))
    said = "with x, counting exposes less than half of the clients, and no attack was tried"
    assert compared(curve((10, 0.0), (20, 1.0)), counted, "x") == said


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "rate", "window"), [(12, 0.3, 4), (20, 0.3, 10)])
def test_a_forecast_agrees_with_simulations(clients, rate, window, scenario_file, tmp_path):
    """Real devices, a fixed model, full batches: nobody at as many rounds as clients, all at the forecast."""
    found = forecast(Setting(clients=clients, rate=rate, window=window))

    def exposed(rounds):
        overrides = {
            "federation.clients": clients,
            "federation.rounds": rounds,
            "federation.participation.rate": rate,
            "analytics.window": window,
            "data.train_images": 16 * clients,
        }
        settings = load_scenario(scenario_file, [f"{key}={value}" for key, value in overrides.items()])
        directory = RunDirectory.create(tmp_path / str(rounds), replace=False)
        return run_scenario(World.prepare(settings), directory).disaggregation.exact_fraction

    assert exposed(clients) < 0.4
    assert exposed(int(1.3 * found.nearly_all)) >= 0.9


def test_the_command(fedsim, tmp_path):
    arguments = ["forecast", "--clients", 6, "--rate", 0.3, "--window", 4]
    done = fedsim(*arguments, "--alternative", "window=8,known=0.9")
    assert (done.status, done.stderr) == (0, "")
    assert "as it is: based on counting up to 6 rounds, then planted problems of 6 clients" in done.stdout
    page = (tmp_path / "forecast.html").read_text()
    assert "data:image/png" in page
    assert "window=8" in page
    found = json.loads(fedsim(*arguments, "--json").stdout)["as it is"]
    assert 0 < found["first"] <= found["half"] <= found["nearly_all"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "0"], "clients is 0: expected greater than 0"),
        (["--clients", "ten"], "'ten' is not a valid int"),
        (["--clients", "8", "--noise", "inf", "--dim", "9"], "noise is inf: expected a finite number"),
        (["--clients", "8", "--counts-noise", "inf"], "counts_noise is inf: expected a finite number"),
        (["--clients", "8", "--alternative", "window"], "--alternative window: expected KEY=VALUE"),
        (["--clients", "8", "--alternative", "window=5,"], "--alternative window=5,: expected KEY=VALUE"),
        (["--clients", "8", "--out", "."], "--out .: expected a file"),
        (["--clients", "10", "--rate", "1.5"], "rate is 1.5: expected less than or equal to 1"),
        (
            ["--clients", "10", "--noise", "1"],
            "forecast: noise also needs dim, the number of entries of an update",
        ),
        (["--clients", "10", "--alternative", "windows=5"], "--alternative windows=5: windows: unknown key"),
        (["--clients", "10", "--alternative", "window"], "expected KEY=VALUE"),
        (["--clients", "10", "--alternative", "counts-noise=-1"], "counts_noise is -1"),
        (["--clients", "10", "--alternative", "window=a"], "window is 'a': expected a valid integer"),
        (["--clients", "10", "--out", "gone/forecast.html"], "there is no folder gone"),
        ([], "Missing option '--clients'"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(fedsim, tmp_path, arguments, message):
    done = fedsim("forecast", *arguments)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
