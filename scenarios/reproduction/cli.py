"""The `fedsim reproduce` command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.sweep.cli import Fresh, Workers, at_work, interruptible

if TYPE_CHECKING:
    from scenarios.reproduction.experiment import Experiment
    from scenarios.reproduction.outcome import Outcome
    from scenarios.sweep.directory import SweepDirectory
    from scenarios.sweep.sweep import Sweep


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
    from scenarios.reproduction.experiment import Budget, experiments

    if budget is not None and budget not in list(Budget):
        raise UserError(f"--budget {budget}: expected {' or '.join(Budget)}")
    if only and not names:
        raise UserError(f"--only {only[0]}: also give the NAME of a table or figure")
    if record is not None and (record.suffix != ".md" or not record.parent.is_dir()):
        raise UserError(f"--record {record}: expected a .md file in an existing folder")
    overrides = () if data is None else (f'data.path="{data}"',)
    chosen = experiments(names or (), overrides)

    from scenarios.sweep.directory import SweepDirectory

    directory = SweepDirectory(out / "cells")
    if names:
        wanted = Budget(budget or ("full" if only else "quick"))
        _run(
            [(e, e.only(e.budget(wanted), only or ())) for e in chosen], directory.path, workers, fresh=fresh
        )
    elif record is None:
        _list(chosen, directory)
    if record is not None:
        from scenarios.reproduction.record import write_record

        write_record(experiments((), overrides), directory, record)
        typer.echo(f"record           {record}")


def _run(
    plans: Sequence[tuple[Experiment, Sweep]], folder: Path, workers: int | None, *, fresh: bool
) -> None:
    """Check all experiments, then run them in turn, cheap points first; write each when it is finished."""
    from scenarios.console import progress_bars
    from scenarios.reproduction.cost import cheap_first
    from scenarios.reproduction.outcome import Outcome
    from scenarios.reproduction.page import write_outcome
    from scenarios.sweep.run import check_worlds, run_sweep

    with interruptible(), progress_bars() as bar:
        for _, plan in plans:
            check_worlds(plan, folder, bar("checking"), fresh=fresh)
        with at_work(folder, workers) as (directory, pool):
            for experiment, plan in plans:
                ordered = replace(plan, points=tuple(cheap_first(plan.points)))
                try:
                    results = run_sweep(ordered, directory, pool, bar(experiment.name), fresh=fresh)
                except KeyboardInterrupt:
                    write_outcome(Outcome.read(experiment, directory), folder.parent)
                    raise
                outcome = Outcome.read(experiment, directory)
                written = write_outcome(outcome, folder.parent)
                _show(outcome)
                for result in [result for result in results if result.reason][:5]:
                    typer.echo(f"failed           {result.reason}")
                for path in written:
                    typer.echo(f"{path.suffix[1:]:<17}{path}")


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
