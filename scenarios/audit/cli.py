"""The `fedsim audit` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, cast, get_args

import click
import typer

from scenarios.audit.kinds import Rows


def audit(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder of a tap, instead of single files.")
    ] = None,
    *,
    aggregates: Annotated[
        Path | None,
        typer.Option(help="Sums, one row per round: .npy, .npz, .parquet, or a run's transcript folder."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            help="Models, one per round: a folder of .npz, .npy, .safetensors or .pt files, or a .npy table."
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,SETTING=NUMBER]…",
            help="What made the models: fedavg, fedavgm, fedadam or fedadagrad, such as fedadam,eta=0.01.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            click_type=click.Choice(get_args(Rows)),
            help="What the rows are. Means are multiplied back by cohort_size or weight.",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of arrays to leave out of --models; by default the buffers of BatchNorm."),
    ] = None,
    modulus: Annotated[
        int | None,
        typer.Option(min=0, max=2**62, help="Integer rows are known modulo this; 0: plain numbers."),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(help="CSV: client,start,stop,count[,sd]. Without it, recovered columns have no names."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder for the results; DIR/audit by default.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help="Number of clients in the sums, if the counts do not name all.")
    ] = None,
    counts_sd: Annotated[
        float, typer.Option(min=0, help="Standard deviation of the noise in the counts.")
    ] = 0.0,
    cohort_sizes: Annotated[
        Path | None, typer.Option(help="CSV: [round,]cohort_size[,weight], one line per row.")
    ] = None,
    layers: Annotated[
        Path | None, typer.Option(help='JSON: {"shapes": [[6, 3, 5, 5], …]}, the tensors of the model.')
    ] = None,
    participation: Annotated[
        Path | None,
        typer.Option(help="CSV: round,client[,took_part], all or some of the participations: known entries."),
    ] = None,
    superlink: Annotated[
        Path | None, typer.Option(help="State database of a Flower SuperLink, for known participations.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(min=0, help="The run in --superlink, if several trained.")
    ] = None,
    flare: Annotated[
        Path | None,
        typer.Option(help="NVIDIA FLARE: round_metrics.jsonl, or a folder with it and clients' audit.log."),
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
    from scenarios.audit.api import audit as audit_log
    from scenarios.audit.dossier import filed
    from scenarios.audit.summary import show_audit

    found = audit_log(
        folder,
        aggregates=aggregates,
        models=models,
        server=server,
        rows=cast("Rows | None", rows),
        skip=tuple(skip or ()),
        modulus=modulus,
        counts=counts,
        out=out,
        clients=clients,
        counts_sd=counts_sd,
        cohort_sizes=cohort_sizes,
        layers=layers,
        participation=participation,
        superlink=superlink,
        run=run,
        flare=flare,
        solver=solver,
        seed=seed,
        alternatives=alternatives,
    )
    if as_json:
        typer.echo(json.dumps(filed(found.findings).model_dump(mode="json"), indent=2))
        return
    show_audit(found.findings, found.report)
