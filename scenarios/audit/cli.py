"""The `fedsim audit` command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from fedsim.core.errors import UserError


def audit(
    *,
    aggregates: Annotated[
        Path,
        typer.Option(help="Sums, one row per round: .npy, .npz, .parquet, or a run's transcript folder."),
    ],
    counts: Annotated[
        Path | None,
        typer.Option(help="CSV: client,start,stop,count[,sd]. Without it, recovered columns have no names."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="A new folder for the results.")],
    clients: Annotated[
        int | None, typer.Option(min=1, help="Number of clients in the sums, if the counts do not name all.")
    ] = None,
    counts_sd: Annotated[
        float, typer.Option(min=0, help="Standard deviation of the noise in the counts.")
    ] = 0.0,
    cohort_sizes: Annotated[
        Path | None, typer.Option(help="CSV with a column cohort_size, one line per round.")
    ] = None,
    layers: Annotated[
        Path | None, typer.Option(help='JSON: {"shapes": [[6, 3, 5, 5], …]}, the tensors of the model.')
    ] = None,
    solver: Annotated[str, typer.Option(help="The solver of the attack; see `fedsim list`.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the attack.")] = 0,
    alternatives: Annotated[
        bool, typer.Option(help="Try changes that would have prevented the leak; each costs another attack.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON instead of a summary.")
    ] = False,
) -> None:
    """Audit the logs of a real system: which clients do its sums and counts reveal?"""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists: choose another --out")
    if counts is None and counts_sd:
        raise UserError(f"--counts-sd {counts_sd:g}: there are no counts; give --counts too")
    if not math.isfinite(counts_sd):
        raise UserError(f"--counts-sd {counts_sd:g}: expected a standard deviation, 0 or more")
    from attacks.disaggregation import ProblemError
    from attacks.disaggregation.disaggregate import solver_named
    from attacks.disaggregation.solvers import unmet_need

    try:
        need = unmet_need(solver_named(solver), has_counts=counts is not None)
    except ProblemError as error:
        raise UserError(f"--{error}") from error
    if need is not None:
        raise UserError(f"--solver: {need}")

    from fedsim.core.files import check_writable, writing
    from scenarios.audit.audit import audit as audit_log
    from scenarios.audit.files import save_audit
    from scenarios.audit.logs import Log
    from scenarios.audit.summary import show_audit
    from scenarios.console import progress_bars

    with writing(out):
        check_writable(out)
    log = Log.read(aggregates, counts, counts_sd=counts_sd, cohort_sizes=cohort_sizes, layers=layers)
    with progress_bars() as bar:
        found = audit_log(
            log,
            num_clients=clients,
            solver=solver,
            seed=seed,
            alternatives=alternatives,
            solving=bar("solving"),
            trying=bar("trying"),
        )
    save_audit(found, out)
    if as_json:
        typer.echo(json.dumps(found.summary(), indent=2))
        return
    show_audit(found, out / "report.html")
