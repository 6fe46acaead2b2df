"""The `fedsim` command.

`endings.py` says which exit status means what. Heavy modules are imported inside the commands, so that
`fedsim --help` is instant.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from fedsim.core.errors import ProcessLostError, RunFailedError, UserError
from scenarios.audit.cli import audit
from scenarios.data_cli import data
from scenarios.endings import EXIT_STATUS_HELP, Status, end, ending, first_ctrl_c_unwinds, flush_output
from scenarios.evaluate.cli import evaluate
from scenarios.forecast.cli import forecast
from scenarios.interruptions import this_command, told, unwound_by_sigterm
from scenarios.reproduction.cli import reproduce
from scenarios.run.engines import ENGINES, INLINE
from scenarios.summary import show_result
from scenarios.sweep.cli import sweep
from scenarios.threads import one_thread_each

if TYPE_CHECKING:
    from scenarios.run.directory import RunDirectory
    from scenarios.run.world import World

app = typer.Typer(
    help="Simulate federated learning, attack what its server sees, and measure what leaks.",
    epilog=EXIT_STATUS_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # Click does.
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fedsim.core.version import installed_version

        typer.echo(f"fedsim {installed_version()}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as clients.local_epochs=8."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a summary.")]
Scenario = Annotated[
    str,
    typer.Argument(metavar="SCENARIO", help="A TOML file, or a name from the library (see `fedsim list`)."),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the run; runs/NAME by default.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run in the folder.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="Training processes of the inline engine; one per core by default."),
]
Engine = Annotated[
    str, typer.Option(click_type=click.Choice(list(ENGINES)), help="How to run the federation.")
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")]


@app.command()
def run(
    scenario: Scenario,
    *,
    out: Out = None,
    overrides: Set = None,
    engine: Engine = INLINE.name,
    workers: Workers = None,
    force: Force = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    as_json: Json = False,
) -> None:
    """Run a scenario end to end: simulate, attack, score, report."""
    if resume and force:
        raise UserError("--resume continues a run and --force replaces it: choose one")
    runtime = ENGINES[engine]() if workers is None else ENGINES[engine]().with_workers(workers)
    world, folder = _prepare(scenario, overrides, out)
    from fedsim.core.locks import alone_in
    from scenarios.console import progress_bars
    from scenarios.run.directory import RunDirectory
    from scenarios.run.runner import read_result, run_scenario
    from scenarios.run.simulate import obstacle_to_resuming

    obstacle = obstacle_to_resuming(world, runtime)
    if resume and obstacle is not None:
        raise UserError(f"--resume: {obstacle}")
    with alone_in(folder, create=True):
        directory = (
            RunDirectory.resume(folder, world.scenario.to_toml())
            if resume
            else RunDirectory.create(folder, replace=force)
        )
        if resume and directory.is_finished:
            typer.echo(f"fedsim: {directory.path} is complete", err=True)
            show_result(read_result(directory), directory.report, as_json=as_json)
            return
        with (
            nullcontext() if resume else directory.kept_unless_refused(),
            _interruptions(directory, resumable=obstacle is None),
            progress_bars() as bar,
        ):
            result = run_scenario(
                world,
                directory,
                engine=runtime,
                training=bar("training"),
                solving=bar("solving"),
                inferring=bar,
            )
    show_result(result, directory.report, as_json=as_json)


@app.command()
def deploy(
    scenario: Scenario,
    *,
    out: Out = None,
    overrides: Set = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a scenario as `run` does, on a Flower SuperLink with a SuperNode for every client.

    The SuperLink is private, listens on this machine only, and ends with the run.
    """
    world, folder = _prepare(scenario, overrides, out)
    from fedsim.core.locks import alone_in
    from scenarios.console import progress_bars
    from scenarios.run.deploy import deploy as deploy_scenario
    from scenarios.run.directory import RunDirectory

    # The run itself is alone in the folder, too: it is another process.
    with alone_in(folder, create=True):
        directory = RunDirectory.create(folder, replace=force)
    with unwound_by_sigterm(), progress_bars() as bar:
        result = deploy_scenario(world.scenario, directory, training=bar("training"))
    show_result(result, directory.report, as_json=as_json)


@app.command()
def attack(
    run_dir: RunDir,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override attack.*, such as attack.solver=highs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack a saved transcript again, without training."""
    from scenarios.run.scenario import load_scenario

    for override in overrides or ():
        if not override.startswith("attack."):
            raise UserError(f"--set {override}: only attack.* can change after the training")

    from fedsim.core.locks import alone_in
    from scenarios.console import progress_bars
    from scenarios.run.directory import RunDirectory
    from scenarios.run.runner import attack_run, honest_part

    with alone_in(run_dir), progress_bars() as bar:
        directory = RunDirectory.open(run_dir)
        settings = load_scenario(directory.scenario, overrides or ())
        honest = honest_part(directory)
        result = attack_run(settings, directory, honest, solving=bar("solving"), inferring=bar)
    show_result(result, directory.report, as_json=as_json)


@app.command()
def report(run_dir: RunDir) -> None:
    """Draw the report of a saved run again."""
    from fedsim.core.locks import alone_in
    from scenarios.run.directory import RunDirectory
    from scenarios.run.runner import write_report

    with alone_in(run_dir):
        directory = RunDirectory.open(run_dir, attacked=True)
        write_report(directory)
    typer.echo(directory.report)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List data sets, models, solvers, scenarios and other choices, and installed packages."""
    from scenarios.inventory import inventory

    found = inventory()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for kind, entries in found.items():
        typer.secho(kind, bold=True)
        width = max(len(name) for name in entries)
        for name, note in entries.items():
            typer.echo(f"  {name:<{width}}  {note}")


# Help lists commands in this order: those above first.
app.command()(sweep)
app.command()(evaluate)
app.command()(audit)
app.command()(forecast)
app.command()(reproduce)
app.add_typer(data, name="data")


def _prepare(scenario: str, overrides: list[str] | None, out: Path | None) -> tuple[World, Path]:
    """The world of the scenario and the folder of its run; raises for every mistake in the scenario."""
    from scenarios.run.scenario import find_scenario, load_scenario

    file = find_scenario(scenario)
    settings = load_scenario(file, overrides or ())

    from scenarios.run.world import World

    return World.prepare(settings), out or Path("runs") / file.stem


@contextmanager
def _interruptions(directory: RunDirectory, *, resumable: bool) -> Iterator[None]:
    """Add to the line about a run that was cut short how to continue it."""
    again = this_command(without=("--force", "--resume"), plus=("--resume",))
    advice = f"; continue with: {again}" if resumable else ""
    try:
        with told(advice):
            yield
    except (OSError, MemoryError, ProcessLostError) as error:
        known = ending(error)
        if known is None:
            raise
        about = "" if isinstance(error, ProcessLostError) else f"{directory.path}: "
        raise RunFailedError(f"{about}{known[1]}{advice}") from error


def main() -> None:
    """The entry point: one line and an exit status for everything but a fault of the program."""
    one_thread_each()
    with first_ctrl_c_unwinds():
        try:
            status = app(standalone_mode=False) or Status.DONE
            if status == Status.INTERRUPTED:  # typer's answer to Ctrl-C
                raise KeyboardInterrupt
            flush_output()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(Status.MISTAKE)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            known = ending(error)
            if known is None:
                raise
            end(*known)
        sys.exit(status)
