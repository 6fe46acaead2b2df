"""The curves of a run: how the server's model gets better, and what has been sent, round by round.

`history.csv` holds figures that the same seed gives again, byte for byte. Seconds stand in `pace.csv`, which
no digest covers.
"""

from __future__ import annotations

import copy
import csv
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict
from numpy.typing import NDArray

from fedsim.core.files import reading
from fedsim.flower import metrics_in
from fedsim.grids.metered import Traffic
from fedsim.server.hooks import RoundHook
from fedsim.training.local_training import FlatModel, evaluated
from scenarios.run.directory import RunDirectory
from scenarios.run.world import World
from scenarios.tables import write_csv

POINTS = 20
"""Evaluations of a run, unless `federation.evaluate_every` asks for others."""
EXAMPLES = 1000
"""Test examples of an evaluation between rounds; the result's own figure is on all of them."""
WRITTEN_EVERY_S = 1.0
"""How long points may wait for their file."""
ROUND, LOSS, SENT, RECEIVED, SECONDS = "round", "test_loss", "bytes_sent", "bytes_received", "seconds"
_STATE, _TRAFFIC = "history", "history-traffic"

Row = dict[str, float]
"""A line of `history.csv`: column → value; `round` is the number of rounds that are over."""

Listener = Callable[[int, Mapping[str, float]], None]
"""Gets the number of rounds that are over, and the figures at that time, seconds included."""


class RecordHistory(RoundHook):
    """Evaluates the server's model now and then, and writes the curves so far, each time whole.

    Short rounds would spend much of their time on files: so a point is written with the next one if the files
    are less than a second old, and with the last one at the latest.

    A resumed run continues the curves: the same run gives the same `history.csv`, however often it was
    killed.
    """

    def __init__(self, world: World, directory: RunDirectory, listeners: Sequence[Listener] = ()) -> None:
        self.world = world
        """The world whose run is recorded."""
        self.traffic = Traffic()
        """Bytes so far; the grid of the run counts here."""
        self._directory, self._listeners = directory, listeners
        self._rounds = world.scenario.federation.rounds
        self._every = world.scenario.federation.evaluate_every or max(1, self._rounds // POINTS)
        self._evaluate = _Evaluation(world)
        self._rows: list[Row] = []
        self._pace: list[Row] = []
        self._began = 0.0
        self._written, self._written_at = 0, -math.inf

    def on_start(self, done: int, model: NDArray[np.float32]) -> None:
        """Continue the seconds of a resumed run, and evaluate the first model of a new one."""
        pace = read_curve(self._directory.pace) if done else []
        self._pace = [row for row in pace if row[ROUND] <= done]
        self._written = len(self._pace)
        self._began = time.perf_counter() - (self._pace[-1][SECONDS] if self._pace else 0.0)
        if done == 0:
            self._record(0, model)

    def after_round(self, done: int, model: NDArray[np.float32]) -> None:
        """Record a point of the curves if one is due."""
        if done % self._every == 0 or done == self._rounds:
            self._record(done, model)

    def _record(self, done: int, model: NDArray[np.float32]) -> None:
        sent = {SENT: self.traffic.sent, RECEIVED: self.traffic.received}
        row: Row = {ROUND: done, **self._evaluate(model), **sent}
        seconds = time.perf_counter() - self._began
        self._rows.append(row)
        self._pace.append({ROUND: done, SECONDS: round(seconds, 3)})
        if done == self._rounds or time.perf_counter() - self._written_at > WRITTEN_EVERY_S:
            self.write()
        for listener in self._listeners:
            listener(done, {**row, SECONDS: seconds})

    def write(self) -> None:
        """Write the points that are in no file yet."""
        if len(self._pace) > self._written:
            write_csv(self._rows, self._directory.history)
            write_csv(self._pace, self._directory.pace)
            self._written, self._written_at = len(self._pace), time.perf_counter()

    def state(self) -> RecordDict:
        """The rows so far, column by column, and the bytes."""
        columns: Any = {
            name: [row[name] for row in self._rows] for name in (self._rows[0] if self._rows else ())
        }
        traffic: Any = {SENT: self.traffic.sent, RECEIVED: self.traffic.received}
        return RecordDict({_STATE: MetricRecord(columns), _TRAFFIC: MetricRecord(traffic)})

    def load_state(self, state: RecordDict) -> None:
        """Continue the curves; a checkpoint from before there were any starts them here."""
        if _STATE not in state:
            return
        columns: Mapping[str, Any] = dict(metrics_in(state, _STATE))
        self._rows = [
            dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
        ]
        traffic: Mapping[str, Any] = metrics_in(state, _TRAFFIC)
        self.traffic.sent, self.traffic.received = traffic[SENT], traffic[RECEIVED]


class _Evaluation:
    """Loss and metric on test examples; a model that did not change is not evaluated again."""

    def __init__(self, world: World) -> None:
        task, test = world.data.task, world.data.test[np.arange(min(EXAMPLES, len(world.data.test)))]
        self._task = task
        self._inputs, self._targets = task.as_inputs(test.inputs), task.as_targets(test.targets)
        self._model = FlatModel(copy.deepcopy(world.model.module).eval())
        self._latest: tuple[NDArray[np.float32], Row] | None = None

    def __call__(self, model: NDArray[np.float32]) -> Row:
        if self._latest is not None and np.array_equal(model, self._latest[0]):
            return self._latest[1]
        self._model.load(model[: self._model.dim])
        found = evaluated(self._task, self._model.module, self._inputs, self._targets)
        figures = {self._task.metric.name: found.metric, **found.further}
        row = {LOSS: found.loss, **{metric_column(name): value for name, value in figures.items()}}
        self._latest = model.copy(), row
        return row


def metric_column(metric: str) -> str:
    """The column of a metric, such as `test_accuracy`."""
    return f"test_{metric.replace(' ', '_')}"


def read_curve(file: Path) -> list[Row]:
    """The lines of a curve's file, as it is now; none if it does not exist."""
    if not file.exists():
        return []
    with reading(file, "the curves of a run"), file.open(newline="", encoding="utf-8") as lines:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
