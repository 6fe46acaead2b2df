"""Sweeps: what points there are, what they share, and what an interruption leaves."""

import csv
import os
import shutil
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from pyarrow import parquet

import scenarios.run.runner
import scenarios.sweep.code
from fedsim.core.errors import UserError
from fedsim.devices.trainer import Trainer
from scenarios.planted import Planted
from scenarios.run.result import PlantedResult
from scenarios.run.scenario import load_scenario
from scenarios.run.simulate import simulate
from scenarios.sweep.code import this_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.page import render_sweep
from scenarios.sweep.pool import local_pool, ray_pool
from scenarios.sweep.run import check_worlds, run_sweep
from scenarios.sweep.sweep import Sweep
from scenarios.sweep.table import tidy

PLANTED = """
title = "Planted"
[planted]
clients = 6
rounds = 24
rate = 0.3
[vary]
window = [4, 8]
seed = [1, 2, 3]
"""
FEDERATED = """
title = "Federated"
base = "small.toml"
[[vary]]
attack.solver = ["auto"]
federation.rounds = [24, 16]
[[vary]]
attack.solver = [{ name = "highs", prove = false }]
"""


@pytest.fixture
def plan(tmp_path, scenario_file):
    def load(text):
        (tmp_path / "sweep.toml").write_text(text)
        return Sweep.load(tmp_path / "sweep.toml")

    return load


COHORTS = """
title = "Cohorts"
base = "small.toml"
[vary]
attack.inference = [
    [{ name = "label_inference", cohorts = [2] }],
    [{ name = "label_inference", cohorts = [1000] }],
    [{ name = "label_inference", cohorts = [1] }],
]
"""


def test_every_attack_is_checked_before_the_training_that_they_share(plan, tmp_path):
    sweep = plan(COHORTS)
    assert len({point.training for point in sweep.points}) == 1
    with pytest.raises(UserError, match="cohorts: 1000 is too many"):
        check_worlds(sweep, tmp_path / "out")


@contextmanager
def counted_trainings():
    """The scenarios that are really simulated in the block."""
    seen = []

    def counted(world, *rest, **options):
        seen.append(world.scenario)
        return simulate(world, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scenarios.run.runner.simulate", counted)
        yield seen


@pytest.fixture(scope="module")
def finished(tmp_path_factory, finished_run):
    """A federated sweep that ran to its end, made once: the sweep, its folder, its trainings."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_bytes(finished_run.scenario.read_bytes())
    (folder / "sweep.toml").write_text(FEDERATED)
    sweep, directory = Sweep.load(folder / "sweep.toml"), SweepDirectory.open(folder / "out")
    with counted_trainings() as trainings:
        results = run_sweep(sweep, directory)
    return SimpleNamespace(sweep=sweep, directory=directory, results=results, trainings=trainings)


def test_every_combination_is_a_point(plan):
    sweep = plan(PLANTED)
    assert sweep.keys == ("window", "seed")
    found = [(p.settings.window, p.settings.seed) for p in sweep.points]
    assert found == [(4, 1), (4, 2), (4, 3), (8, 1), (8, 2), (8, 3)]


def test_blocks_are_added_up_and_equal_points_are_one(plan):
    sweep = plan(
        PLANTED.replace("[vary]", "[[vary]]")
        + '\n[[vary]]\n"window" = [8]\nseed = [3, 4]\nclients = [6, 5]\n'
    )
    assert len(sweep.points) == 6 + 3
    assert sweep.keys == ("window", "seed", "clients")
    assert sweep.points[0].values == {"window": 4, "seed": 1, "clients": 6}


def test_a_point_keeps_its_name_when_the_sweep_changes(plan):
    before = {p.name for p in plan(PLANTED).points}
    after = {p.name for p in plan(PLANTED.replace("[4, 8]", "[8, 12]")).points}
    assert len(before & after) == 3


def test_points_that_differ_in_the_attack_share_a_training(finished):
    assert [s.federation.rounds for s in finished.trainings] == [24, 16]
    assert [r.figures.disaggregation.solver for r in finished.results] == ["auto", "auto", "highs"]


def test_points_that_differ_in_what_is_published_share_a_training(plan):
    sweep = plan(
        'title = "Counts"\nbase = "small.toml"\n[vary]\n'
        'analytics.release = [[], [{ name = "rounding", multiple = 2 }]]\n'
        "clients.lr = [0.01, 0.02]"
    )
    assert (len(sweep.points), len({p.training for p in sweep.points})) == (4, 2)


def test_a_point_is_the_run_that_its_scenario_gives(finished, finished_run):
    run = finished.directory.point(finished.sweep.points[0])
    for name in ("recovery.npz", "counts.csv", "transcript/aggregates.npy", "truth/participation.npy"):
        assert (run.path / name).read_bytes() == (finished_run.path / name).read_bytes(), name
    assert run.report.exists()
    assert load_scenario(run.scenario).title == "Small · attack.solver = auto, federation.rounds = 24"


def test_an_interrupted_sweep_goes_on_and_ends_the_same(finished, tmp_path, monkeypatch):
    sweep, directory = finished.sweep, SweepDirectory.open(tmp_path / "out")
    attack_run, begun = scenarios.run.runner.attack_run, []

    def interrupted(scenario, *rest):
        begun.append(scenario)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return attack_run(scenario, *rest)

    monkeypatch.setattr(scenarios.run.runner, "attack_run", interrupted)
    with counted_trainings() as trainings:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, directory)
        assert sum(map(directory.done, sweep.points)) == 1
        run_sweep(sweep, directory)
        run_sweep(sweep, directory)  # nothing is left to do
    assert (len(begun), len(trainings)) == (2 + 2, 2)
    for point in sweep.points:
        recoveries = [d.point(point).recovery.read_bytes() for d in (directory, finished.directory)]
        assert recoveries[0] == recoveries[1]


def test_a_point_that_was_attacked_with_other_settings_is_run_again(finished, tmp_path):
    """It would stand in the table under settings that it was not made with."""
    shutil.copytree(finished.directory.path, tmp_path / "out", symlinks=True)
    directory, (first, *rest) = SweepDirectory.open(tmp_path / "out"), finished.sweep.points
    run = directory.point(first)
    other = load_scenario(run.scenario, ["attack.solver=highs"])
    scenarios.run.runner.attack_run(other, run, scenarios.run.runner.honest_part(run))
    assert not directory.done(first)
    assert all(map(directory.done, rest))
    run_sweep(finished.sweep, directory)
    assert run.recovery.read_bytes() == finished.directory.point(first).recovery.read_bytes()


def test_a_point_that_fails_is_a_row_with_its_reason_and_is_tried_again(plan, tmp_path, monkeypatch):
    sweep, directory = plan(PLANTED), SweepDirectory.open(tmp_path / "out")
    run = Planted.run

    def fail(planted):
        if planted.seed == 2:
            raise ValueError("two\nlines")
        return run(planted)

    with monkeypatch.context() as patch:
        patch.setattr(Planted, "run", fail)
        results = run_sweep(sweep, directory)
    rows = tidy(sweep, results)
    assert [row["reason"] for row in rows] == ["", "ValueError: two lines", ""] * 2
    assert [row["disaggregation.exact_fraction"] is None for row in rows] == [False, True, False] * 2
    assert "2 of them failed" in render_sweep(sweep, results, directory)
    assert not any(result.reason for result in run_sweep(sweep, directory))


def test_a_training_that_fails_is_the_reason_of_all_its_points(plan, tmp_path, monkeypatch):
    def fail(world, *rest, **options):
        raise UserError("no power")

    monkeypatch.setattr(scenarios.run.runner, "simulate", fail)
    results = run_sweep(plan(FEDERATED), SweepDirectory.open(tmp_path / "out"))
    assert [result.reason for result in results] == ["no power"] * 3


def test_figures_only(plan, tmp_path):
    sweep = plan('title = "One"\nbase = "small.toml"\nkeep_runs = false\nvary.federation.rounds = [8]')
    directory = SweepDirectory.open(tmp_path / "out")
    run_sweep(sweep, directory)
    assert not list((tmp_path / "out/trainings").iterdir())
    for point in sweep.points:
        left = {path.name for path in directory.point(point).path.iterdir()}
        assert left == {"scenario.toml", "result.json", "report.html", "code.txt", "digests.json"}
    assert all(map(directory.done, sweep.points))


def test_processes_find_what_one_process_finds(plan, tmp_path):
    sweep, tables = plan(PLANTED), []
    for number in (1, 2):
        with local_pool(number) as pool:
            results = run_sweep(sweep, SweepDirectory.open(tmp_path / f"with-{number}"), pool)
        tables.append(
            [
                {name: value for name, value in row.items() if not name.endswith("seconds")}
                for row in tidy(sweep, results)
            ]
        )
    assert tables[0] == tables[1]


def test_work_under_way_ends_with_the_block_that_is_left():
    with pytest.raises(KeyboardInterrupt), local_pool(2) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()
        futures = [pool.submit(time.sleep, 60) for _ in range(2)]
        raise KeyboardInterrupt
    assert all(future.cancelled() or future.exception() is not None for future in futures)


def test_who_interrupts_is_told_how_to_go_on(fedsim, tmp_path, monkeypatch):
    (tmp_path / "windows.toml").write_text(PLANTED)
    run, begun = Planted.run, []

    def interrupted(problem):
        begun.append(problem)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return run(problem)

    monkeypatch.setattr(Planted, "run", interrupted)
    command = ("sweep", "windows.toml", "--workers", 1, "--set", "rate=0.2")
    done = fedsim(*command)
    said = "fedsim: interrupted; continue with: fedsim sweep windows.toml --workers 1 --set rate=0.2\n"
    assert (done.status, done.stderr) == (130, said)
    assert fedsim(*command).status == 0
    assert len(begun) == 3 + 4


def test_a_folder_that_another_command_works_in_is_left_alone(fedsim, tmp_path):
    (tmp_path / "windows.toml").write_text(PLANTED)
    directory = SweepDirectory.open(tmp_path / "runs/windows")
    with directory.alone():
        done = fedsim("sweep", "windows.toml", "--workers", 1)
    assert done.status == 2 and "runs/windows: another process is working there" in done.stderr
    assert not directory.file.exists()
    assert fedsim("sweep", "windows.toml", "--workers", 1).status == 0


def test_a_fresh_training_takes_nothing_that_other_code_left(plan, scenario_file, tmp_path, monkeypatch):
    sweep = plan('title = "One"\nbase = "small.toml"\nvary.federation.rounds = [4]')
    directory = SweepDirectory.open(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(scenarios.sweep.code, "this_code", lambda: "0.0+older")
        run_sweep(sweep, directory)
    with counted_trainings() as trainings:
        (kept,) = run_sweep(sweep, directory)
        shutil.rmtree(directory.point(sweep.points[0]).path)
        (mixed,) = run_sweep(sweep, directory)
        assert not trainings
        (fresh,) = run_sweep(sweep, directory, fresh=True)
    assert (kept.code, mixed.code, fresh.code) == ("0.0+older", f"0.0+older, {this_code()}", this_code())
    assert len(trainings) == 1


def test_what_a_killed_training_spooled_is_dropped(tmp_path):
    directory = SweepDirectory.open(tmp_path / "out")
    (tmp_path / "out/trainings/.updates-x").mkdir()
    (tmp_path / "out/trainings/.updates-x/1.f32").write_bytes(b"1234")
    with directory.alone():
        assert not list((tmp_path / "out/trainings").iterdir())


@pytest.mark.slow
def test_ray_finds_what_one_process_finds(plan, tmp_path):
    sweep = plan(PLANTED)
    with ray_pool() as pool:
        there = run_sweep(sweep, SweepDirectory.open(tmp_path / "there"), pool)
    here = run_sweep(sweep, SweepDirectory.open(tmp_path / "here"))
    for a, b in zip(here, there, strict=True):
        assert a.figures.disaggregation.bit_accuracy == b.figures.disaggregation.bit_accuracy, b.reason


def test_the_command_leaves_a_table_and_a_page(fedsim, tmp_path):
    (tmp_path / "windows.toml").write_text(PLANTED)
    done = fedsim("sweep", "windows.toml", "--workers", 1, "--set", "clients=5")
    assert (done.status, done.stderr) == (0, "")
    with (tmp_path / "runs/windows/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["window"], row["seed"]) for row in rows] == [(w, s) for w in "48" for s in "123"]
    result = PlantedResult.read(tmp_path / f"runs/windows/points/{rows[0]['point']}/result.json")
    found = result.disaggregation.baselines.counts_only_exact_fraction
    assert float(rows[0]["disaggregation.baselines.counts_only_exact_fraction"]) == found
    table = parquet.read_table(tmp_path / "runs/windows/sweep.parquet").to_pylist()
    assert [(row["window"], row["seed"]) for row in table] == [(w, s) for w in (4, 8) for s in (1, 2, 3)]
    page = (tmp_path / "runs/windows/sweep.html").read_text()
    assert "data:image/png" in page
    assert "://" not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('title = "Planted"', ""), "sweep.toml: title: missing"),
        (("window =", "windows ="), "sweep.toml: windows = 4, seed = 1: windows: unknown key"),
        (("[4, 8]", "[4, 0]"), "sweep.toml: window = 0, seed = 1: window is 0: expected greater than 0"),
        (("[4, 8]", "4"), "vary.0.window is 4: expected a valid list"),
        (("[4, 8]", "[]"), "vary.0.window is []: List should have at least 1 item"),
        (("[planted]", 'base = "small.toml"\n[planted]'), "expected either base or planted, and not both"),
        (("[planted]", "[plants]"), "plants: unknown key, expected one of title, base, planted"),
        (
            ("[planted]", 'axes = ["rate"]\n[planted]'),
            "axes: rate does not vary, expected one of window, seed",
        ),
        (("[vary]", "[vary"), "sweep.toml: not a TOML file"),
        (("[planted]\nclients = 6\nrounds = 24\nrate = 0.3", 'base = "smal"'), "smal: no such file"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(fedsim, tmp_path, change, message):
    (tmp_path / "sweep.toml").write_text(PLANTED.replace(*change))
    done = fedsim("sweep", "sweep.toml")
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep.toml", "--set", "title=5"], "title is 5: expected a valid string"),
        (
            ["sweep.toml", "--set", "clients.dataset_size=1000"],
            "clients.dataset_size: 6 clients × 1000 examples",
        ),
        (["sweep.toml", "--set", "attack=1"], "vary: attack.solver: attack is not a section"),
        (
            ["sweep.toml", "--set", "attack.solver=highs"],
            "sweep.toml varies attack.solver, so the base",
        ),
        (["sweep.toml", "--workers", "0"], "0 is not in the range"),
        (["sweep.toml", "--out", "small.toml"], "small.toml exists and is not a sweep"),
        (["nothing.toml"], "nothing.toml is missing"),
    ],
)
def test_mistakes_of_a_federated_sweep(fedsim, scenario_file, tmp_path, arguments, message):
    (tmp_path / "sweep.toml").write_text(FEDERATED)
    done = fedsim("sweep", *arguments)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.toml", "small.toml"}


@pytest.mark.parametrize(
    "figure", ["exact", "disaggregation", "disaggregation.solver", "label_inference.tv.oracle"]
)
def test_a_figure_that_is_none_is_refused_before_points_run(fedsim, tmp_path, figure):
    (tmp_path / "sweep.toml").write_text(PLANTED.replace("[planted]", f'figure = "{figure}"\n[planted]'))
    done = fedsim("sweep", "sweep.toml", "--workers", 1)
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert f"sweep.toml: figure: {figure} is no figure of these points; the most similar are" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("figure", ["window", "counts.2", "disaggregation.outcomes.proved"])
def test_figures_by_dotted_name(plan, tmp_path, figure):
    sweep = plan(PLANTED.replace("[planted]", f'figure = "{figure}"\n[planted]'))
    assert sweep.file.figure == figure


def test_a_figure_of_an_inference_attack_needs_that_attack(plan):
    figure, attack = 'figure = "label_inference.tv.oracle"\n', 'vary.attack.inference = [["label_inference"]]'
    base = 'title = "Labels"\nbase = "small.toml"\n'
    assert plan(f"{base}{figure}{attack}").points
    with pytest.raises(UserError, match="is no figure of these points"):
        plan(f"{base}{figure}vary.seed = [1]")


def test_a_figure_that_no_point_has_a_value_of_is_drawn_blank(plan, tmp_path):
    name = "disaggregation.outcomes.unheard_of"
    sweep = plan(PLANTED.replace("[planted]", f'figure = "{name}"\n[planted]'))
    directory = SweepDirectory.open(tmp_path / "out")
    assert "data:image/png" in render_sweep(sweep, run_sweep(sweep, directory), directory)


def test_a_damaged_result_of_a_point_is_one_line(fedsim, plan, tmp_path):
    sweep = plan(PLANTED)
    run_sweep(sweep, directory := SweepDirectory.open(tmp_path / "runs/sweep"))
    file = directory.point(sweep.points[0]).result
    file.write_text('{"disaggregation": {}}')
    done = fedsim("sweep", "sweep.toml", "--workers", 1)
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert "result.json: disaggregation.exact_fraction: missing" in done.stderr
    assert f"remove {file.parent.relative_to(tmp_path)} and run the sweep again" in done.stderr


EPOCHS = """
title = "Epochs"
base = "small.toml"
share_epochs = true
vary.clients.local_epochs = [1, 3, 2]
vary.federation.rounds = [8]
vary.federation.server_model = ["MODEL"]
"""


def test_numbers_of_epochs_share_the_longest_training(plan, tmp_path, monkeypatch):
    trained, train = [], Trainer._train
    monkeypatch.setattr(
        Trainer,
        "_train",
        lambda self, chunk: (trained.append(self.settings.local_epochs), train(self, chunk)),
    )
    sweep = plan(EPOCHS.replace("MODEL", "fixed"))
    results = run_sweep(sweep, SweepDirectory.open(tmp_path / "sweep"))
    assert [result.reason for result in results] == ["", "", ""]
    assert set(trained) == {3}
    assert len({result.figures.disaggregation.update_cosine for result in results}) == 3


def test_a_moving_model_takes_another_way_for_every_number_of_epochs(plan):
    for model, longer in (("fixed", 1), ("updated", 3)):
        points = plan(EPOCHS.replace("MODEL", model)).points
        assert len({point.longer_training for point in points}) == longer
        assert len({point.training for point in points}) == 3
