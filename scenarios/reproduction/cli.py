"""The `fedsim reproduce` command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.sweep.cli import Fresh, Workers, interruptible

if TYPE_CHECKING:
    from scenarios.reproduction.experiment import Experiment
    from scenarios.reproduction.outcome import Outcome
    from scenarios.sweep.directory import SweepDirectory


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]…", help="Tables and figures to run; without any, list them."),
    ] = None,
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="quick|full",
            help="quick takes minutes, full is the paper's whole grid; quick by default, full with --only.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,…", help="Run only the part of the grid with these values."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for cells, tables and pages.")] = Path(
        "runs/paper"
    ),
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder or .npz file of the data set, for the federations.")
    ] = None,
    workers: Workers = None,
    fresh: Fresh = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE.md", help="Add all finished cells to a record."),
    ] = None,
) -> None:
    """Reproduce the paper's tables and figures, ours beside theirs; finished cells are kept."""
    from fedsim.core.errors import UserError
    from scenarios.reproduction.api import CELLS, planned, reproductions, with_data
    from scenarios.reproduction.experiment import experiments
    from scenarios.sweep.directory import SweepDirectory

    if record is not None and (record.suffix != ".md" or not record.parent.is_dir()):
        raise UserError(f"--record {record}: expected a .md file in an existing folder")
    plans = planned(names or (), budget=budget, only=only or (), data=data)
    directory = SweepDirectory(out / CELLS)
    if names:
        with interruptible():
            for found in reproductions(plans, out, workers, fresh=fresh):
                _show(found.outcome)
                for reason in found.failed[:5]:
                    typer.echo(f"failed           {reason}")
                for path in found.files:
                    typer.echo(f"{path.suffix[1:]:<17}{path}")
    elif record is None:
        _list([experiment for experiment, _ in plans], directory)
    if record is not None:
        from scenarios.reproduction.record import write_record

        write_record(experiments((), with_data(data)), directory, record)
        typer.echo(f"record           {record}")


def _show(outcome: Outcome) -> None:
    """Print the table."""
    from scenarios.reproduction.outcome import Tally

    header, lines = outcome.table()
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    typer.echo(f"\n{outcome.experiment.file.title}   (ours / the paper's; · not run, – no value)")
    for line in (header, *lines):
        typer.echo("  ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True)))
    run = [cell for cell in outcome.cells if cell.seeds]
    seeds = sorted({cell.seeds for cell in run})
    columns = sorted({cell.columns for cell in run})
    for text in (
        str(Tally.of(outcome.cells)),
        f"{_range(seeds)} seeds and {_range(columns)} columns per cell; "
        f"{'; '.join(dict.fromkeys(cell.limit for cell in run))}; "
        f"{outcome.cpu_seconds:.0f} s in all",
    ):
        typer.echo(text)
    if outcome.others:
        typer.echo(f"cells {outcome.others}")


def _range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no"
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _list(chosen: Sequence[Experiment], directory: SweepDirectory) -> None:
    """Print the experiments, their cost on this machine, and how much of each is finished."""
    from scenarios.console import progress_bars
    from scenarios.reproduction.cost import Speed, duration
    from scenarios.reproduction.experiment import Budget

    every = [point for experiment in chosen for point in experiment.sweep.points]
    with progress_bars() as bar:
        speed = Speed.measure(every, bar("calibrating"))
    typer.echo(f"{'':<24}{'quick':^26}{'full':^26}")
    typer.echo(f"{'':<24}" + 2 * f"{'points run':>14}{'CPU left':>11} ")
    for experiment in chosen:
        line = f"{experiment.name:<24}"
        for budget in Budget:
            points = experiment.budget(budget).points
            left = [point for point in points if not directory.done(point)]
            ran = f"{len(points) - len(left)}/{len(points)}"
            seconds = speed.seconds(left, share_epochs=experiment.file.share_epochs)
            line += f"{ran:>14}{duration(seconds):>11} "
        typer.echo(f"{line}  {experiment.file.title}")
    for text in (
        "CPU left: an estimate for one core, from a few seconds of calibration on this machine. Cells that",
        "cannot be solved take longest and vary most. Inversion and property inference are not included.",
        "`fedsim reproduce NAME` runs the quick budget.",
    ):
        typer.echo(text)
