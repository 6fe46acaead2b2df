"""The summary of an audit on the terminal."""

from __future__ import annotations

from pathlib import Path

import typer

from scenarios.audit.audit import Audit
from scenarios.audit.words import advice, conclusion, noise, remarks, scored


def show_audit(found: Audit, report_file: Path) -> None:
    """Print the figures as a table, then the sentences."""
    summary = found.summary()
    tally = ", ".join(f"{number} {outcome}" for outcome, number in summary["outcomes"].items() if number)
    for name, value in (
        ("verdict", found.verdict),
        ("separated", _separated(found, tally)),
        *(_worth(found) if found.separated else ()),
        ("noise", noise(found)),
        ("rounds", f"{found.rounds}, of {found.dim} entries each, rank {found.rank}"),
    ):
        typer.echo(f"{name:<14}{value}")
    if found.score is not None:
        typer.echo(f"{'truth':<14}{scored(found.score)}")
    for reason, number in summary["unresolved"].items():
        typer.echo(f"{'unresolved':<14}{number}: {reason}")
    for tried in found.alternatives:
        typer.echo(f"  with {tried.change}: {tried.separated} of {found.separated} come out the same")
    for sentence in (
        *([] if found.separated and not found.doubts else [conclusion(found)]),
        *remarks(found),
        *advice(found),
    ):
        typer.echo(f"  {sentence}")
    typer.echo(f"{'report':<14}{report_file}")


def _worth(found: Audit) -> list[tuple[str, str]]:
    """What follows from the columns that were separated."""
    return [
        ("own updates", f"of {found.singled_out}"),
        ("right", f"about {found.expected_right:.1f} of {found.separated}, by the attack's own confidence"),
    ]


def _separated(found: Audit, tally: str) -> str:
    """How many clients were separated. No number if that would comfort without reason."""
    if found.verdict == "inconclusive" and not found.separated:
        numbers = ", then ".join(f"{tried.num_clients} clients ({tried.told_by})" for tried in found.tried)
        return f"inconclusive; tried with {numbers}"
    return f"{found.separated} of {found.num_clients} clients ({found.told_by}): {tally}"
