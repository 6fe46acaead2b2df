"""A look at a recording in words and as a table."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table

from scenarios.watch.watch import Look

CAVEAT = "Nobody told apart is no proof: better attacks, or attackers who know more, may succeed earlier."


def line(look: Look) -> str:
    """One line per look, where there is no terminal."""
    return "  ".join(f"{name} {value}" for name, value in _figures(look))


def table(look: Look, folder: Path) -> Table:
    """The live view."""
    found = Table(title=str(folder), show_header=False, title_justify="left", caption_justify="left")
    found.caption = _basis(look)
    for name, value in _figures(look):
        found.add_row(name, value, style="bold red" if name == "alarm" and value != "none" else None)
    return found


def as_json(look: Look) -> str:
    """One line of JSON."""
    return json.dumps(look.figures(), allow_nan=False)


def _figures(look: Look) -> list[tuple[str, str]]:
    attack, forecast = look.attack, look.forecast
    if attack is None:
        by_attack = "too few rounds"
    else:
        right = f"{attack.right} right" if attack.right is not None else f"about {attack.expected:.1f} right"
        by_attack = f"{attack.separated} after {attack.rounds} rounds ({right}), {attack.verdict}"
    kinds = sorted({f"{alarm['kind']} in round {alarm['round']}" for alarm in look.alarms[:1]})
    return [
        ("round", f"{look.round}{' (finished)' if look.finished else ''}"),
        ("clients", str(look.clients)),
        ("told apart by attack", by_attack),
        *(
            [
                ("by forecast", f"{forecast['expected']} by round {forecast['until']}"),
                ("at best by now", str(forecast["at_best"])),
            ]
            if forecast is not None
            else [("by forecast", "unknown: the tap has no monitor and keeps no truth")]
        ),
        ("alarm", ", ".join(kinds) or ("clients are exposed" if look.exposed else "none")),
    ]


def _basis(look: Look) -> str:
    if look.forecast is None:
        return CAVEAT
    by = "the tap's monitor" if look.monitored else "who took part"
    return f"The forecast is made from {by}: {look.forecast['rests_on']} {CAVEAT}"
