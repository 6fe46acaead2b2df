"""What a recording shows at one moment: by attack, by forecast, and at best.

The monitor of a tap writes its forecasts down, because it sees how alike updates are. Without a monitor the
forecast is made here, from who took part. It then takes a client's updates for equal from round to round.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analytics.report import ParticipationReport
from fedsim.core.errors import UserError
from fedsim.core.files import reading
from fedsim.tap.exposure.attack import Found
from fedsim.tap.exposure.evidence import Signal, Windows
from fedsim.tap.exposure.forecast import Participation, forecast
from fedsim.tap.log import EXPOSURE_FILE, progress_of
from scenarios.audit.audit import audit
from scenarios.audit.score import score
from scenarios.audit.tap_folder import TapFolder

FEWEST_ROUNDS = 2
"""Rounds below which there is nothing to attack."""


@dataclass(frozen=True)
class Look:
    """One look at a recording after `round` rounds.

    `forecast` holds the fields of a `Forecast` and what it `rests_on`, and `monitored` says that the tap's
    own monitor made it. None: neither a monitor nor the truth is there. `attack` is None if there are too few
    rounds. `alarms` are those that the monitor raised.
    """

    round: int
    finished: bool
    clients: int
    forecast: dict[str, Any] | None
    monitored: bool
    attack: Found | None
    alarms: list[dict[str, Any]]

    @property
    def exposed(self) -> bool:
        """Whether the attack, or the forecast, tells anybody apart."""
        by_attack = self.attack is not None and self.attack.exposed >= 0.5
        return by_attack or bool(self.forecast and self.forecast["expected"])

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "exposed": self.exposed}


def look(folder: Path, *, ahead: int, attacked: Found | None = None) -> Look:
    """Attack what the recording holds by now, unless that was `attacked` already, and read its forecast."""
    tap = TapFolder.open(folder)
    rounds, finished = progress_of(folder)
    lines = list(_lines(folder / EXPOSURE_FILE))
    forecasts = [line for line in lines if "expected" in line]
    found = attacked
    if found is None or found.rounds < rounds:
        found = _attack(tap) if rounds >= FEWEST_ROUNDS else None
    truth = tap.truth()
    made = forecasts[-1] if forecasts else _forecast(tap, ahead) if truth else None
    return Look(
        round=rounds,
        finished=finished,
        clients=_clients(tap) if truth is None else len(truth),
        forecast=made,
        monitored=bool(forecasts),
        attack=found,
        alarms=[{"round": line["round"], "kind": line["alarm"]} for line in lines if line.get("alarm")],
    )


def _attack(tap: TapFolder) -> Found:
    log = tap.read()
    found = audit(log, alternatives=False)
    truth = tap.truth()  # only now: the attack is over
    right = None
    if truth is not None:
        took_part = {client: column for client, column in truth.items() if column[: found.rounds].any()}
        right = score(found, took_part, log.rounds).right
    return Found(found.rounds, found.separated, found.expected_right, right, found.verdict)


def _forecast(tap: TapFolder, ahead: int) -> dict[str, Any]:
    truth = tap.truth()
    assert truth is not None
    participation = Participation()
    for row in np.array(list(truth.values())).T:
        participation.add(np.flatnonzero(row).tolist())
    found = forecast(participation, Windows(_published(tap)), Signal(), ahead)
    return {**asdict(found), "rests_on": found.rests_on()}


def _published(tap: TapFolder) -> tuple[int, ...]:
    counts = tap.counts
    return () if counts is None else tuple(np.unique(ParticipationReport.read_csv(counts).stop).tolist())


def _clients(tap: TapFolder) -> int:
    counts = tap.counts
    return 0 if counts is None else len(ParticipationReport.read_csv(counts).clients)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """What the monitor wrote; a server that was killed may have left half a line."""
    if not path.exists():
        return
    with reading(path, "the findings of a monitor"):
        text = path.read_text(encoding="utf-8")
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        try:
            content = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}: not the findings of a monitor: {error}") from error
        if not isinstance(content, dict) or not isinstance(content.get("round"), int):
            raise UserError(f"{path}: not the findings of a monitor: a line without its round")
        yield content
