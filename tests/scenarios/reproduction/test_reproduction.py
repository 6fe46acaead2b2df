"""The paper's experiments: their files make sense, their cells are honest, and mistakes are told."""

import csv
import errno
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import scenarios.sweep.code
import scenarios.sweep.work
from attacks.disaggregation.solvers import Projection
from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.files import write_json
from scenarios.cli import app
from scenarios.planted import Planted
from scenarios.reproduction import experiment as experiment_module
from scenarios.reproduction.cost import Speed, Step, cheap_first, duration
from scenarios.reproduction.experiment import PAPER_FOLDER, Budget, Experiment, experiments
from scenarios.reproduction.measures.cell import EXACT_FRACTION, costs
from scenarios.reproduction.measures.fewest import Fewest
from scenarios.reproduction.measures.figures import Figures
from scenarios.reproduction.measures.histogram import Histogram
from scenarios.reproduction.measures.mean import Mean
from scenarios.reproduction.outcome import Outcome, Tally
from scenarios.reproduction.page import render_outcome
from scenarios.reproduction.record import write_record
from scenarios.reproduction.recorded import with_recorded
from scenarios.run.scenario import Scenario
from scenarios.run.scoring import update_variance
from scenarios.sweep.code import this_code
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.run import run_sweep
from scenarios.tables import write_csv

SMALL = """
title = "Small"
across = "window"
paper = "small.csv"
[planted]
clients = 6
rounds = 24
rate = 0.3
[vary]
rounds = [12, 24]
window = [4, 8]
seed = [1, 2]
[quick]
window = [4]
"""
PAPER_VALUES = "rounds,window,paper\n12,4,0.5\n24,4,0.5\n12,8,0.25\n"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A library of one small experiment."""
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "small.toml").write_text(SMALL)
    (folder / "small.csv").write_text(PAPER_VALUES)
    monkeypatch.setattr(experiment_module, "PAPER_FOLDER", folder)
    return Experiment.load(folder / "small.toml")


@pytest.fixture
def directory(tmp_path):
    return SweepDirectory.open(tmp_path / "out" / "cells")


@pytest.mark.parametrize("name", [path.stem for path in sorted(PAPER_FOLDER.glob("*.toml"))])
def test_the_files_make_sense(name):
    experiment = Experiment.load(PAPER_FOLDER / f"{name}.toml")
    quick, full = experiment.budget(Budget.QUICK), experiment.budget(Budget.FULL)
    assert set(experiment.file.quick) <= set(experiment.sweep.keys)
    assert quick.points and {p.name for p in quick.points} <= {p.name for p in full.points}


@pytest.mark.parametrize("name", [path.stem for path in sorted(PAPER_FOLDER.glob("*.csv"))])
def test_every_value_of_the_paper_has_its_cell(name, tmp_path):
    experiment = Experiment.load(PAPER_FOLDER / f"{name}.toml")
    cells = experiment.cells(experiment.rows(SweepDirectory(tmp_path)))
    with (PAPER_FOLDER / f"{name}.csv").open() as file:
        values = sorted(float(row["paper"]) for row in csv.DictReader(file))
    assert sorted(cell.paper for cell in cells if cell.paper is not None) == values


def test_what_was_not_run_is_blank(small, directory):
    run_sweep(small.budget(Budget.QUICK), directory)
    cells = {(c.place["rounds"], c.place["window"]): c for c in Outcome.read(small, directory).cells}
    assert {place for place, cell in cells.items() if cell.ours is None} == {(12, 8), (24, 8)}
    assert cells[24, 8].paper is None
    done = cells[24, 4]
    assert (done.seeds, done.seeds_planned, done.columns) == (2, 2, 12)
    assert done.limit == "auto, repair_time_limit_s 20"
    found = [Planted(clients=6, rounds=24, rate=0.3, window=4, seed=seed).run() for seed in (1, 2)]
    assert done.ours == sum(f.disaggregation.exact_fraction for f in found) / 2
    assert done.baseline is not None


def test_a_full_budget_goes_on_from_a_quick_one(small, directory, monkeypatch):
    run_sweep(small.budget(Budget.QUICK), directory)
    ran = []
    monkeypatch.setattr(Planted, "run", lambda self, *_: ran.append(self) or {})
    run_sweep(small.budget(Budget.FULL), directory)
    assert [(p.rounds, p.window) for p in ran] == [(12, 8), (12, 8), (24, 8), (24, 8)]


def test_experiments_share_cells(tmp_path):
    rate, window = (Experiment.load(PAPER_FOLDER / f"table{name}.toml") for name in ("S4", "S5"))
    shared = {p.name for p in rate.sweep.points} & {p.name for p in window.sweep.points}
    assert len(shared) == 4 * 5 * 3  # rate 0.1, windows of 10


def test_the_page_shows_what_was_run(small, directory):
    run_sweep(small.budget(Budget.QUICK), directory)
    page = render_outcome(Outcome.read(small, directory))
    assert "2 of 4 cells run" in page and "data:image/png" in page


def test_the_record_tells_what_was_run_and_what_was_not(small, directory, tmp_path):
    run_sweep(small.budget(Budget.QUICK), directory)
    write_record([small], directory, tmp_path / "record.md")
    text = (tmp_path / "record.md").read_text()
    assert "| `small` | 4 | 2 |" in text and "Not run at all" not in text
    assert "In all 2 of 4 cells run" in text
    with (tmp_path / "record" / "small.csv").open() as file:
        assert [row["window"] for row in csv.DictReader(file)] == ["4", "4"]
    once = (tmp_path / "record" / "small.svg").read_bytes()
    write_record([small], directory, tmp_path / "record.md")
    assert (tmp_path / "record" / "small.svg").read_bytes() == once


def test_the_record_names_each_code_once(small, directory, tmp_path):
    run_sweep(small.budget(Budget.QUICK), directory)
    # One seed of one cell is from another release.
    older = next(p for p in small.sweep.points if directory.point(p).path.is_dir())
    (directory.point(older).path / "code.txt").write_text("0.0+older\n")
    write_record([small], directory, tmp_path / "record.md")
    codes = re.search(r"; code (.*)\.\n", (tmp_path / "record.md").read_text())[1].split("; ")
    assert sorted(codes) == sorted(["0.0+older", this_code()])


def test_a_record_of_nothing_names_what_is_missing(small, directory, tmp_path):
    write_record([small], directory, tmp_path / "record.md")
    assert "Not run: `small`." in (tmp_path / "record.md").read_text()


def recorded(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_record_keeps_the_cells_of_runs_that_are_elsewhere(small, directory, tmp_path):
    file, table = tmp_path / "record.md", tmp_path / "record" / "small.csv"
    run_sweep(small.budget(Budget.QUICK), directory)
    write_record([small], directory, file)
    # Without the line that says when, and for how long: tables round seconds.
    said, cells = file.read_text().splitlines()[3:], recorded(table)
    picture = table.with_suffix(".svg").read_bytes()
    elsewhere = SweepDirectory.open(tmp_path / "elsewhere" / "cells")
    write_record([small], elsewhere, file)
    assert (file.read_text().splitlines()[3:], recorded(table)) == (said, cells)
    assert table.with_suffix(".svg").read_bytes() == picture
    run_sweep(small.only(small.sweep, ["window=8", "rounds=24"]), elsewhere)
    write_record([small], elsewhere, file)
    assert [cell for cell in recorded(table) if cell["window"] == "4"] == cells
    assert "In all 3 of 4 cells run" in file.read_text()


def test_a_cell_of_a_record_stands_until_it_is_run_again_with_as_many_seeds(small, directory, tmp_path):
    file, table = tmp_path / "record.md", tmp_path / "record" / "small.csv"
    part = small.only(small.sweep, ["window=4", "rounds=24"])
    run_sweep(part, directory)
    for point in part.points:
        (directory.point(point).path / "code.txt").write_text("0.0+older\n")
    write_record([small], directory, file)
    elsewhere = SweepDirectory.open(tmp_path / "elsewhere" / "cells")
    for seeds, code in (("1", "0.0+older"), ("1,2", this_code())):
        run_sweep(small.only(part, [f"seed={seeds}"]), elsewhere)
        write_record([small], elsewhere, file)
        assert [(cell["seeds"], cell["code"]) for cell in recorded(table)] == [("2", code)]


def test_a_record_keeps_what_is_not_compared_and_values_that_only_runs_tell_of(small, tmp_path):
    figures = Figures(figures={"one": EXACT_FRACTION}, paper={"one": 0.1}, baseline="one")
    shares = Histogram(figures="counts")
    run = row(1.0, rounds=12, window=4, seed=1, **{"counts.3": 0.5})
    measures: dict[str, Figures | Histogram] = {"figures": figures, "shares": shares}
    for name, measure in measures.items():
        made = measure.cells([run], ["rounds", "window"])
        experiment = replace(small, name=name, file=small.file.model_copy(update={"measure": measure}))
        write_csv(Outcome(experiment, tuple(made), {}).rows(), tmp_path / f"{name}.csv")
        nothing = Outcome.read(experiment, SweepDirectory(tmp_path / "nothing"))
        kept = with_recorded(nothing, tmp_path / f"{name}.csv")
        assert [replace(cell, limits={}) for cell in kept.cells if cell.seeds] == made
        assert kept.cpu_seconds == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rounds,window\n12,4\n", "not a table of a record: it has no column paper"),
        ("rounds,window,paper,seeds\n12,4,0.5,many\n", "not a table of a record: .*'many'"),
        ("window,paper,seeds\n4,0.5,2\n", "cells by window, expected by rounds, window: move it away"),
    ],
)
def test_a_table_that_no_record_left_is_named(small, directory, tmp_path, content, message):
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "small.csv").write_text(content)
    with pytest.raises(UserError, match=rf"small\.csv: {message}"):
        write_record([small], directory, tmp_path / "record.md")
    assert not (tmp_path / "record.md").exists()


def row(exact, **keys):
    return {"disaggregation.exact_fraction": exact, "disaggregation.cpu_seconds": 1.0, "columns": 4,
            "limit": "", "code": "", "point": str(keys), "training": None, **keys}  # fmt: skip


def test_fewest_needs_every_trial_to_be_exact():
    rows = [row(1.0, rounds=8, seed=1), row(0.9, rounds=8, seed=2), row(1.0, rounds=16, seed=1),
            row(1.0, rounds=16, seed=2), row(None, rounds=32, seed=1)]  # fmt: skip
    (cell,) = Fewest(limits={"rank": 1.0}).cells(rows, ["rounds"])
    assert (cell.ours, cell.seeds, cell.limits) == (16.0, 2, {"rank": 4.0})


def test_fewest_takes_no_value_from_fewer_trials_than_others_had():
    rows = [row(1.0, rounds=8, seed=1), row(None, rounds=8, seed=2), row(0.5, rounds=16, seed=1),
            row(1.0, rounds=16, seed=2)]  # fmt: skip
    (cell,) = Fewest().cells(rows, ["rounds"])
    assert cell.ours is None and cell.seeds == 0


def test_times_of_failed_searches_do_not_count():
    rows = [row(1.0, seconds=2.0, seed=1), row(0.5, seconds=100.0, seed=2)]
    (cell,) = Mean(figure="seconds", exact_only=True).cells(rows, [])
    assert cell.ours == 2.0


def test_what_is_shared_is_paid_for_once():
    of_a_run = {"simulation.cpu_seconds": 60.0, "simulation.seconds": 500.0, "training": "t"}
    rows = [row(1.0, point="a", **of_a_run), row(0.5, point="b", **of_a_run), row(0.5, point="b", **of_a_run)]
    assert sum(costs(rows).values()) == 62.0
    old = {"simulation.seconds": 500.0, "training": "u", "inference.cpu_seconds": 3.0}
    assert sum(costs([*rows, row(1.0, point="c", **old), row(None, point="d")]).values()) == 62.0 + 504.0


def test_figures_of_one_run_are_cells_beside_each_other():
    measure = Figures(figures={"sum": "psnr.sum", "one": "psnr.one"}, paper={"sum": 6.1})
    cells = measure.cells([row(1.0, **{"psnr.sum": 5.0, "psnr.one": 30.0})], [])
    assert [(c.place["what"], c.ours, c.paper) for c in cells] == [("sum", 5.0, 6.1), ("one", 30.0, None)]


def test_a_value_that_does_not_occur_has_no_share():
    shares = [{"counts.0": 0.9, "counts.1": 0.1}, {"counts.0": 0.8, "counts.1": 0.1, "counts.2": 0.1}]
    cells = Histogram(figures="counts").cells([row(1.0, seed=i, **s) for i, s in enumerate(shares)], [])
    assert [c.ours for c in cells] == pytest.approx([0.85, 0.1, 0.05])
    (cell,) = Histogram(figures="counts").cells([row(None, **{"counts.0": None})], [])
    assert cell.ours is None


def test_a_value_of_the_paper_that_needs_no_attack_is_not_compared():
    figures = {"sum": "psnr.sum", "one": "psnr.one", "grey": "psnr.grey"}
    measure = Figures(figures=figures, paper={"sum": 6.1, "one": 25.0}, baseline="grey")
    cells = measure.cells([row(1.0, **{"psnr.sum": 15.0, "psnr.one": 30.0, "psnr.grey": 12.0})], [])
    assert [(c.baseline, c.telling) for c in cells] == [(12.0, False), (12.0, True), (12.0, True)]
    assert (Tally.of(cells).compared, Tally.of(cells).better) == (1, 1)


def test_shares_of_counts_are_those_of_the_planted_rounds():
    shares = Planted(clients=40, rounds=400, window=10, solver=Projection()).run().counts
    assert sum(shares.values()) == pytest.approx(1)
    mean = sum(int(value) * share for value, share in shares.items())
    assert mean == pytest.approx(1.0, abs=0.15)  # rate 0.1: five standard errors


def test_variance_of_updates_is_that_of_the_noise_that_was_planted():
    problem = Planted(clients=20, rounds=100, rate=0.3, dim=200, noise_sd=0.5)
    truth, transcript, _ = problem.plant()
    assert update_variance(truth, transcript) == pytest.approx(0.25, rel=0.05)


def test_tally_grants_the_papers_rounding(small, directory):
    cells = [
        c
        for ours, paper in ((0.667, 0.67), (0.673, 0.67), (0.5, 0.67), (0.68, 0.67), (None, 1.0))
        for c in Mean().cells([row(ours, seed=1)], [])
        for c in [type(c)(**{**c.__dict__, "paper": paper})]
    ]
    assert str(Tally.of(cells)) == "4 of 5 cells run: 1 better than the paper's, 2 equal, 1 worse"


def step_of(point):
    assert isinstance(point.settings, Scenario)
    return Step.of(point.settings)


def test_a_shared_training_costs_once():
    points = Experiment.load(PAPER_FOLDER / "table1.toml").budget(Budget.QUICK).points
    speed = Speed(easy=0.0, hard=0.0, noisy=0.0, lost=0.0, steps={step_of(p): 1.0 for p in points})
    epochs = [point.values["clients.local_epochs"] for point in points]
    alone = [speed.seconds([point]) for point in points]
    assert alone == [alone[0] / epochs[0] * number for number in epochs]
    assert speed.seconds(points) == sum(alone)
    by_epochs = {speed.seconds([p for p in points if p.longer_training == one.longer_training],
                               share_epochs=True) for one in points}  # fmt: skip
    assert by_epochs == {max(alone)}


def test_table_1_is_sixteen_million_steps():
    points = Experiment.load(PAPER_FOLDER / "table1.toml").sweep.points
    speed = Speed(easy=0.0, hard=0.0, noisy=0.0, lost=0.0, steps={step_of(p): 1.0 for p in points})
    assert speed.seconds(points, share_epochs=True) == pytest.approx(16.1e6, rel=0.05)


def test_steps_are_timed_as_they_are_taken():
    (point,) = Experiment.load(PAPER_FOLDER / "tableS7.toml").budget(Budget.QUICK).points
    step = step_of(point)
    assert (step.batch_size, step.momentum) == (16, False)
    assert step.cpu_seconds() > 0


def test_cheap_points_come_first():
    def place(point):
        return point.values["clients.dataset_size"] * point.values["clients.local_epochs"]

    points = cheap_first(reversed(Experiment.load(PAPER_FOLDER / "tableS1.toml").sweep.points))
    assert [place(point) for point in points] == sorted(map(place, points))


def test_durations_have_the_unit_that_suits():
    assert [duration(s) for s in (0, 0.2, 59, 90, 7200)] == ["–", "~1 s", "~59 s", "~1.5 min", "~2 h"]


def test_an_unknown_name_lists_the_names():
    with pytest.raises(UserError, match=r"tableS9: no such table or figure, expected one of table.*tableS4"):
        experiments(["tableS9"])


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_done(small, directory, monkeypatch):
    left = [2]

    def full(*arguments):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        write_json(*arguments)

    monkeypatch.setattr(scenarios.sweep.work, "write_json", full)
    with pytest.raises(RunFailedError, match="No space left on device"):
        run_sweep(small.sweep, directory)
    assert [directory.done(point) for point in small.sweep.points] == [True] * 2 + [False] * 6


def test_cells_of_other_code_are_told_and_made_again_if_asked(small, directory, monkeypatch):
    part, older = (small.only(small.sweep, only) for only in (["window=4"], ["window=4", "rounds=12"]))
    with monkeypatch.context() as patch:
        patch.setattr(scenarios.sweep.code, "this_code", lambda: "0.0+older")
        run_sweep(older, directory)
    ran, run = [], Planted.run
    monkeypatch.setattr(Planted, "run", lambda self, *_: ran.append(self.rounds) or run(self))
    run_sweep(part, directory)
    outcome = Outcome.read(small, directory)
    assert (
        outcome.others
        == f"made by other code than this, {this_code()}: 1 by 0.0+older; --fresh runs them again"
    )
    assert outcome.others in render_outcome(outcome)
    assert [row["code"] for row in outcome.rows()] == ["0.0+older", "", this_code(), ""]
    run_sweep(part, directory, fresh=True)
    assert ran == [24, 24, 12, 12]
    assert not Outcome.read(small, directory).others


def test_a_part_of_the_grid_can_be_run(small, directory):
    part = small.only(small.sweep, ["window=8", "seed=2,1", "rounds=24"])
    assert [p.values for p in part.points] == [{"rounds": 24, "window": 8, "seed": seed} for seed in (1, 2)]
    table1 = Experiment.load(PAPER_FOLDER / "table1.toml")
    assert len(table1.only(table1.sweep, ["clients.momentum=0.9", "clients.local_epochs=1,64"]).points) == 12
    runtime = Experiment.load(PAPER_FOLDER / "runtime-vs-rounds.toml")
    assert {p.settings.solver.name for p in runtime.only(runtime.sweep, ["solver=auto"]).points} == {"auto"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["small", "--only", "window"], "--only window: expected KEY=VALUE,VALUE…, such as seed=1,2"),
        (
            ["small", "--only", "rate=1"],
            "small: --only rate=1: rate does not vary, expected one of rounds",
        ),
        (["small", "--only", "seed=1,9"], "small: --only seed=1,9: 9 is not one of its values, 1, 2"),
        (["small", "--only", "seed="], "small: --only seed=:  is not one of its values, 1, 2"),
        (
            ["small", "--budget", "quick", "--only", "window=8"],
            "--only: none of the 4 points has all of these values",
        ),
        (["--only", "seed=1"], "--only seed=1: also give the NAME of a table or figure"),
        (["small", "--budget", "some"], "--budget some: expected quick or full"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(small, fedsim, tmp_path, arguments, message):
    done = fedsim("reproduce", *arguments)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["paper"]


def test_an_interrupted_reproduction_shows_what_there_is(small, fedsim, tmp_path, monkeypatch):
    run, begun = Planted.run, []

    def interrupted(problem):
        begun.append(problem.rounds)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return run(problem)

    monkeypatch.setattr(Planted, "run", interrupted)
    command = ("reproduce", "small", "--only", "window=8,4", "--workers", 1)
    done = fedsim(*command)
    assert (done.status, done.stderr) == (
        130,
        "fedsim: interrupted; continue with: fedsim reproduce small --only window=8,4 --workers 1\n",
    )
    assert "1 of 4 cells run" in (tmp_path / "runs/paper/small.html").read_text()
    assert begun == [12] * 3  # what is cheap comes first
    done = fedsim(*command)
    assert (done.status, len(begun)) == (0, 3 + 6)
    assert "4 of 4 cells run" in done.stdout


def test_the_command_prints_the_table_and_keeps_cells(small, tmp_path):
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["reproduce", "small", "--out", str(out), "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert "2 of 4 cells run" in result.output and "· / 0.25" in result.output
    with (out / "small.csv").open() as file:
        assert [row["ours"] == "" for row in csv.DictReader(file)] == [False, True, False, True]
    assert (out / "small.html").exists()
