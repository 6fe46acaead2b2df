"""`ExposureMonitor`: watches a recording while the training runs, and raises an alarm in time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from logging import WARNING
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from flwr.common.logger import log
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.tap.exposure.attack import AttackProcess, Found
from fedsim.tap.exposure.evidence import Windows, given_away
from fedsim.tap.exposure.forecast import Forecast, Participation, forecast, repeats_soon
from fedsim.tap.exposure.similarity import Similarity
from fedsim.tap.log import EXPOSURE_FILE, TapLog

Then = Literal["warn", "stop", "coarsen"]
"""What an alarm does besides its warning."""


@dataclass(frozen=True)
class ExposureMonitor:
    """An alarm before clients are exposed: give it to `Tap(monitor=…)`.

    It looks at every round, and forecasts every so many rounds how many clients can be told apart that many
    rounds later. It raises an alarm if that is more than the fraction `limit` of the clients, or if counts
    about to be published give more away. `then` says what happens besides a warning:

    - `"warn"`: nothing.
    - `"stop"`: the training ends before the next round, with the model so far. Counts of the last, unfinished
      window are not published.
    - `"coarsen"`: the open window of counts becomes twice as long. As long as there is a reason for an alarm,
      every further window is twice as long as the one before. What is left of a window in the end is not
      published.

    With `attack`, it also attacks the recording now and then, in a process of its own that takes a tenth of
    the time at most, and warns if that separates anybody. The absence of an alarm proves nothing.
    """

    every: int = 10
    limit: float = 0.0
    then: Then = "warn"
    attack: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise UserError(f"ExposureMonitor(every={self.every!r}): expected a number of rounds, 1 or more")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int | float) or not 0 <= self.limit < 1:
            raise UserError(
                f"ExposureMonitor(limit={self.limit!r}): expected a share of the clients, from 0 to below 1"
            )
        if self.then not in get_args(Then):
            allowed = ", ".join(map(repr, get_args(Then)))
            raise UserError(f"ExposureMonitor(then={self.then!r}): expected one of {allowed}")
        if not isinstance(self.attack, bool):
            raise UserError(f"ExposureMonitor(attack={self.attack!r}): expected True or False")


class Watch:
    """The monitor at work on one recording. It sees every round before the round is written."""

    def __init__(self, settings: ExposureMonitor, tap_log: TapLog) -> None:
        self._settings, self._log = settings, tap_log
        self._participation, self._similarity = Participation(), Similarity()
        self._attack = AttackProcess(tap_log.folder) if settings.attack else None
        self._warned: set[str] = set()
        self._forecast_once = False
        self.stopped = False
        """Whether the training should not begin another round."""
        for nodes in tap_log.cohorts():
            self._participation.add(nodes)
        if tap_log.rounds > self._participation.rounds:
            log(
                WARNING,
                "ExposureMonitor: it does not know who took part in the %s rounds before this start "
                "(Tap(truth='none')), so it counts clients from here on",
                tap_log.rounds,
            )
        while self._participation.rounds < tap_log.rounds:
            self._participation.add([])

    def sampled(self, update: NDArray[np.float64]) -> NDArray[np.float64]:
        """The entries of an update that the monitor looks at."""
        return self._similarity.sampled(update)

    def add(self, nodes: Sequence[int], updates: Mapping[int, NDArray[np.float64]]) -> None:
        """See a round that is about to be written: its nodes, and their `sampled` parts of the sum."""
        self._participation.add(nodes)
        self._similarity.add({self._participation.number(node): u for node, u in updates.items()})
        self._before_counts()
        soon = not self._forecast_once and repeats_soon(self._participation, self._settings.every)
        if soon or self._participation.rounds % self._settings.every == 0:
            self._forecast_once |= soon
            self._check()
        self._read_attack()

    def end(self) -> None:
        """The training is over."""
        if self._attack is not None:
            self._attack.end()

    def _before_counts(self) -> None:
        """Would counts that this round completes give somebody away, who is not yet?"""
        stop = self._participation.rounds
        if self._log.counts.closes_at != stop:
            return
        published = self._log.counts.published
        before = int(given_away(self._participation.matrix, Windows(tuple(published))).sum())
        after = int(given_away(self._participation.matrix, Windows((*published, stop))).sum())
        if after > before and self._beyond(after):
            self._alarm(
                "counts",
                f"counts of the window up to round {stop} leave no choice for {after} of "
                f"{self._participation.clients} clients",
            )

    def _check(self) -> None:
        ahead = self._settings.every
        windows = Windows(self._log.counts.stops_until(self._participation.rounds + ahead))
        found = forecast(self._participation, windows, self._similarity.signal(), ahead)
        self._write({**asdict(found), "rests_on": found.rests_on()})
        if self._beyond(found.expected):
            self._alarm("forecast", sentence(found) + f" It rests on {found.rests_on()}")
        if self._attack is not None and self._participation.occupied > self._participation.rank:
            self._attack.start()

    def _read_attack(self) -> None:
        found = None if self._attack is None else self._attack.result()
        if isinstance(found, str):
            self._warn(
                "no attack", f"the attack could not run, so alarms rest on the forecast alone: {found}"
            )
        elif isinstance(found, Found):
            self._write({"round": found.rounds, "attack": asdict(found)})
            if self._beyond(found.exposed):
                about = "are right" if found.right is not None else "are probably right"
                self._alarm(
                    "attack",
                    f"after {found.rounds} rounds our attack separates {found.separated} clients, and "
                    f"{found.exposed:.3g} of these findings {about}",
                )

    def _beyond(self, clients: float) -> bool:
        return clients > self._settings.limit * self._participation.clients

    def _alarm(self, kind: str, reason: str) -> None:
        consequence = {
            "warn": "the training goes on",
            "stop": "the training ends with the model of this round",
            "coarsen": "counts become coarser",
        }[self._settings.then]
        self._write({"round": self._participation.rounds, "alarm": kind, "reason": reason})
        self._warn(kind, f"ALARM in round {self._participation.rounds}: {reason} Now {consequence}.")
        if self._settings.then == "stop":
            self.stopped = True
            self._log.counts.withhold()
        elif self._settings.then == "coarsen":
            self._log.counts.coarsen()

    def _warn(self, kind: str, line: str) -> None:
        """Every kind of news once; all checks are in the file."""
        if kind not in self._warned:
            self._warned.add(kind)
            log(WARNING, "ExposureMonitor: %s", line)

    def _write(self, content: dict[str, Any]) -> None:
        append_line(self._log.folder / EXPOSURE_FILE, content)


def sentence(found: Forecast) -> str:
    """The forecast in one sentence."""
    return (
        f"{found.expected} of {found.clients} clients may be told apart by round {found.until}; a perfect "
        f"attack could tell {found.at_best} apart by now."
    )


def append_line(path: Path, content: Mapping[str, Any]) -> None:
    """Add a line of JSON to a private file."""
    line = json.dumps(content, allow_nan=False) + "\n"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
        file.write(line)
