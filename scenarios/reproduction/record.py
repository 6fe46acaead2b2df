"""The record of finished runs: a Markdown file, with tables and pictures beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsim.core.files import write_text, written_whole
from fedsim.core.version import installed_version
from scenarios.reproduction.experiment import PAPER_FOLDER, Experiment
from scenarios.reproduction.outcome import Outcome, Tally
from scenarios.reproduction.pictures import draw
from scenarios.reproduction.recorded import with_recorded
from scenarios.sweep.directory import SweepDirectory
from scenarios.sweep.sweep import shown
from scenarios.tables import write_csv


def write_record(experiments: Sequence[Experiment], directory: SweepDirectory, file: Path) -> None:
    """Write `file`, and a table and a picture per experiment in a folder of the same name beside it.

    Cells of an earlier record stay if this folder has no runs for them.
    """
    beside = file.with_suffix("")
    beside.mkdir(exist_ok=True)
    outcomes = [
        with_recorded(Outcome.read(experiment, directory), beside / f"{experiment.name}.csv")
        for experiment in experiments
    ]
    run = [outcome for outcome in outcomes if Tally.of(outcome.cells).run]
    for outcome in run:
        name = outcome.experiment.name
        write_csv([row for row in outcome.rows() if row["seeds"]], beside / f"{name}.csv")
        _write_picture(outcome, beside / f"{name}.svg")
    sections = [_section(outcome, beside.name) for outcome in run]
    spent = {what: seconds for outcome in outcomes for what, seconds in outcome.costs.items()}
    hours = sum(spent.values()) / 3600
    text = "\n".join((*_opening(file, outcomes, hours), *(line for section in sections for line in section)))
    write_text(file, text)


def _opening(file: Path, outcomes: Sequence[Outcome], hours: float) -> list[str]:
    rows = []
    for outcome in outcomes:
        tally = Tally.of(outcome.cells)
        compared = (tally.better, tally.equal, tally.worse) if tally.compared else ("", "", "")
        rows.append([f"`{outcome.experiment.name}`", *map(str, (tally.cells, tally.run, *compared))])
    missing = [f"`{o.experiment.name}`" for o in outcomes if not Tally.of(o.cells).run]
    return [
        "# The paper's tables and figures, ours beside theirs",
        "",
        f"`fedsim reproduce --record {file.as_posix()}` writes this page from finished runs: {_made()}; "
        f"{hours:.2g} hours of computing in all. `fedsim reproduce NAME` runs a table or figure again, and "
        f"`--budget full` runs all its cells. The command adds new cells to the tables in `{file.stem}/`; a "
        "cell there stays until it is run again with as many seeds.",
        "",
        "A cell that was not run is blank. Equal means equal up to the paper's rounding to two digits. Most "
        "figures have no values in the paper's text to compare with. A value of the paper that needs no "
        "attack, such as that of a constant guess, is shown but not compared.",
        "",
        *_markdown(["", "cells", "run", "better than the paper's", "equal", "worse"], rows),
        "",
        f"In all {Tally.of(cell for outcome in outcomes for cell in outcome.cells)}; a shared cell counts "
        "in each of its tables.",
        *([f"Not run: {', '.join(missing)}."] if missing else []),
        "",
    ]


def _section(outcome: Outcome, folder: str) -> list[str]:
    name, file = outcome.experiment.name, outcome.experiment.file
    run = [cell for cell in outcome.cells if cell.seeds]
    worse = [c for c in run if Tally.of([c]).worse]
    header, lines = outcome.table()
    made = [
        line
        for line, side in zip(lines, outcome.down, strict=True)
        if any(outcome.side(cell) == side for cell in run)
    ]
    return [
        f"## {file.title}",
        "",
        f"{Tally.of(outcome.cells)}. Seeds per cell: {_values(cell.seeds for cell in run)} of "
        f"{_values(cell.seeds_planned for cell in run)}; columns per cell: "
        f"{_values(cell.columns for cell in run)}; {_texts(cell.limit for cell in run)}; "
        f"{outcome.cpu_seconds:.0f} s; code {_texts(code for cell in run for code in cell.codes)}.",
        *([f"Worse than the paper: {'; '.join(_named(cell.place) for cell in worse)}."] if worse else []),
        "",
        f"![{file.title}]({folder}/{name}.svg)",
        "",
        *_markdown(header, made),
        "",
        f"Each cell shows our value, then the paper's after a slash if there is one. Lines without any run "
        f"are left out ([{name}.csv]({folder}/{name}.csv)).",
        "",
        *(f"- {note}" for note in file.notes),
        "",
    ]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows)]


def _values(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))


def _texts(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _named(place: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {shown(value)}" for key, value in place.items())


def _made() -> str:
    """When, on which machine and with which code."""
    today = datetime.now(UTC).date().isoformat()
    release = f"fedsim {installed_version()}"
    return f"{today}, {os.cpu_count()} cores, {_commit() or release}"


def _commit() -> str:
    """The commit of the checkout that runs; empty if there is none."""
    command = ["git", "-C", str(PAPER_FOLDER), "rev-parse", "--short", "HEAD"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return f"commit {told.stdout.strip()}" if told.returncode == 0 else ""


def _write_picture(outcome: Outcome, path: Path) -> None:
    """Write an SVG file; the same cells give the same bytes."""
    import matplotlib

    with (
        matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}),
        written_whole(path) as temporary,
    ):
        draw(outcome).savefig(temporary, format="svg", metadata={"Date": None})
