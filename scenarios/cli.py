"""The `fedsim` command.

`endings.py` says which exit status means what. Heavy modules are imported inside the commands, so that
`fedsim --help` is instant.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import click
import typer

from fedsim.core.errors import ProcessLostError, RunFailedError, UserError
from scenarios.audit.cli import audit
from scenarios.compare.cli import compare
from scenarios.data_cli import data
from scenarios.endings import EXIT_STATUS_HELP, Status, end, ending, first_ctrl_c_unwinds, flush_output
from scenarios.evaluate.cli import evaluate
from scenarios.forecast.cli import forecast
from scenarios.imports import quick_imports
from scenarios.interruptions import this_command, told, unwound_by_sigterm
from scenarios.reproduction.cli import reproduce
from scenarios.run.engines import ENGINES, INLINE
from scenarios.summary import show_result
from scenarios.sweep.cli import sweep
from scenarios.threads import one_thread_each
from scenarios.view.cli import view
from scenarios.watch.cli import watch

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


TRACKABLE = ("tensorboard", "mlflow", "wandb")
"""The names of `scenarios.run.trackers`, which is imported when a run starts."""

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
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track", click_type=click.Choice(TRACKABLE), help="Send the training curves to this tool, too."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a scenario end to end: simulate, attack, score, report."""
    from scenarios.run.attack_start import start_ahead

    # Mistakes are told before the largest imports. Both processes import side by side.
    start_ahead()
    with quick_imports():
        from fedsim.core.seeds import prepare_streams
        from scenarios.run.scenario import load_scenario
    prepare_streams(load_scenario(scenario, overrides or ()).seed)
    with quick_imports():
        from scenarios.run.api import PlannedRun, engine_named

    plan = PlannedRun.of(
        scenario, overrides or (), out=out, engine=engine_named(engine, workers), attack_follows=True
    )
    complete = resume and plan.is_finished
    with unwound_by_sigterm(), _interruptions(plan.folder, resumable=plan.obstacle_to_resuming is None):
        found = plan.run(force=force, resume=resume, track=track or ())
    if complete:
        typer.echo(f"fedsim: {plan.folder} is complete", err=True)
    show_result(found.result, found.report, as_json=as_json)


@app.command()
def deploy(
    scenario: Scenario,
    *,
    out: Out = None,
    overrides: Set = None,
    superlink: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="A SuperLink that is there, with a SuperNode per client."),
    ] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="Certificates to check that SuperLink with; without, no encryption.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a scenario as `run` does, on a Flower SuperLink with a SuperNode for every client.

    By default the SuperLink is private, listens on this machine only, and ends with the run.
    """
    from fedsim.core.locks import alone_in
    from fedsim.grids.superlink import existing_superlink
    from scenarios.console import progress_bars
    from scenarios.run.api import PlannedRun
    from scenarios.run.deploy import certificates_in, deploy_on, superlink_address
    from scenarios.run.deploy import deploy as deploy_scenario
    from scenarios.run.directory import RunDirectory

    if root_certificates is not None and superlink is None:
        raise UserError("--root-certificates: expected --superlink HOST:PORT beside it")
    address = None if superlink is None else superlink_address(superlink)
    certificates = None if root_certificates is None else certificates_in(root_certificates)
    plan = PlannedRun.of(scenario, overrides or (), out=out)
    with ExitStack() as stack:
        stack.enter_context(unwound_by_sigterm())
        link = None if address is None else stack.enter_context(existing_superlink(address, certificates))
        # The run itself is alone in the folder, too: it is another process.
        with alone_in(plan.folder, create=True):
            directory = RunDirectory.create(plan.folder, replace=force)
        stack.enter_context(_interruptions(plan.folder, resumable=False))
        bar = stack.enter_context(progress_bars())
        if link is None:
            result = deploy_scenario(plan.world.scenario, directory, training=bar("training"))
        else:
            found = deploy_on(link, plan.world.scenario, directory, training=bar("training"))
            if found is None:
                typer.echo(
                    f"the run is complete; the SuperLink's machine has it in {directory.path.absolute()}"
                )
                return
            result = found
    show_result(result, directory.report, as_json=as_json)


@app.command()
def attack(
    run_dir: RunDir,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override attack.*, such as attack.solver=highs."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Copy the run to this folder and attack it there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the result of another attack.")] = False,
    as_json: Json = False,
) -> None:
    """Attack a saved transcript again, without training."""
    from scenarios.run.api import attack as attack_again

    found = attack_again(run_dir, overrides or (), out=out, force=force)
    show_result(found.result, found.report, as_json=as_json)


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
def list_(
    module: Annotated[
        str | None, typer.Argument(metavar="[MODULE]", help="List the plug-ins in a module of yours instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List data sets, models, solvers, scenarios and other choices, plug-ins and installed packages."""
    from scenarios.inventory import inventory, plug_ins_in

    found = inventory() if module is None else plug_ins_in(module)
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
app.command()(watch)
app.command()(forecast)
app.command()(compare)
app.command()(view)
app.command()(reproduce)
app.add_typer(data, name="data")


@contextmanager
def _interruptions(folder: Path, *, resumable: bool) -> Iterator[None]:
    """Add to the line about a run that was cut short how to continue it, or how to replace it."""
    again = this_command(without=("--force", "--resume"), plus=("--resume",) if resumable else ("--force",))
    advice = f"; {'continue' if resumable else 'start again'} with: {again}"
    try:
        with told(advice):
            yield
    except (OSError, MemoryError, ProcessLostError) as error:
        known = ending(error)
        if known is None or known[0] is not Status.OUTSIDE:
            raise
        about = "" if isinstance(error, ProcessLostError) else f"{folder}: "
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
        # The system takes back the memory at once: Python would look at every object again.
        gc.freeze()
        sys.exit(status)
