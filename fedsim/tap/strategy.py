"""`Tap`: wraps anybody's Flower strategy, and records what its server receives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import wraps
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, ClassVar, get_args

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedsim.core.buffers import BUFFERS
from fedsim.core.errors import UserError
from fedsim.server.attachment import Attachment, Summed, attachments, innermost, listed, replace_method
from fedsim.tap.exposure.monitor import ExposureMonitor, Watch
from fedsim.tap.log import Recording, Rows, TapLog, TruthKept
from fedsim.tap.recorder import Recorder, Replies
from fedsim.tap.stopping import SoFar, TrainingStoppedError


class Tap(Attachment):
    """The strategy inside, unchanged, with a recording of every training round in the folder `out`.

    Calls, attributes and results are those of the strategy inside, a `start()` of its own included.

    A row of the recording is the `record` of a round: the `"sum"` of the clients' updates, their `"mean"`, or
    the `"model"` after the round. An update is the difference between the model that a client returns and the
    model that it got, or the reply itself if `replies="updates"`. `weighted_by` names the metric that updates
    are multiplied by; None counts every update once. With a `window`, the tap also writes how often each
    client took part in every window of so many rounds, by the node ids of the replies.

    Rows hold the float arrays. Integers, and arrays whose names match a pattern in `skip` (running statistics
    of BatchNorm), stay aside. The first round fixes the layout.

    The truth stands apart, in files that only their owner can read: `"participation"` says who took part in
    which round, `"updates"` adds the mean update of every client, and `"none"` keeps nothing.

    A `monitor` raises an alarm before clients are exposed. If it stops the training, `start` returns the
    model so far.

    A server that was killed continues its recording. A finished recording is never overwritten.
    """

    _own: ClassVar[frozenset[str]] = Attachment._own | {"_recorder", "_so_far"}

    def __init__(
        self,
        strategy: Strategy,
        *,
        out: str | Path,
        record: Rows = "sum",
        weighted_by: str | None = None,
        window: int | None = None,
        replies: Replies = "models",
        skip: Sequence[str] = BUFFERS,
        truth: TruthKept = "participation",
        monitor: ExposureMonitor | None = None,
    ) -> None:
        for name, value, allowed in (
            ("record", record, get_args(Rows)),
            ("replies", replies, get_args(Replies)),
            ("truth", truth, get_args(TruthKept)),
        ):
            if value not in allowed:
                raise UserError(f"Tap({name}={value!r}): expected one of {', '.join(map(repr, allowed))}")
        if window is not None and (not isinstance(window, int) or window < 1):
            raise UserError(f"Tap(window={window!r}): expected a number of rounds, 1 or more, or None")
        if weighted_by is not None and not isinstance(weighted_by, str):
            raise UserError(f"Tap(weighted_by={weighted_by!r}): expected the name of a metric, or None")
        if isinstance(skip, str):
            raise UserError(f"Tap(skip={skip!r}): expected a list of patterns")
        recording = Recording(rows=record, weighted_by=weighted_by, window=window, truth=truth)
        if monitor is not None and not isinstance(monitor, ExposureMonitor):
            raise UserError(f"Tap(monitor={monitor!r:.40}): expected an ExposureMonitor, or None")
        super().__init__(strategy)
        for attachment in attachments(strategy):
            if attachment._hides_replies:
                name = type(attachment).__name__
                raise UserError(
                    f"Tap({name}(…)) would record masked vectors: write {name}(Tap(…)), which records sums"
                )
        tap_log = TapLog(Path(out), recording)
        watch = None if monitor is None else Watch(monitor, tap_log)
        recorder = Recorder(tap_log, recording, replies=replies, skip=skip, watch=watch)
        object.__setattr__(self, "_recorder", recorder)
        object.__setattr__(self, "_so_far", SoFar())
        _attach(innermost(strategy), recorder, self._so_far)

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`; Flower's `Result` with the model so far if the monitor stops it."""
        recorder: Recorder = self._recorder
        before = recorder.log.rounds
        with recorder.log.alone(), recorder.watching():
            try:
                result = self.inner.start(*args, **self._so_far.with_evaluation(kwargs))
            except TrainingStoppedError:
                result = self._so_far.result
            recorder.log.finish()
        if recorder.log.rounds == before:
            log(WARNING, "Tap: no round was recorded: start() never called aggregate_train with replies")
        else:
            folder, rounds, clients = (
                recorder.log.folder,
                recorder.log.rounds,
                len(recorder.log.counts.clients),
            )
            log(INFO, "Tap: %s holds %s rounds of %s clients", folder, rounds, clients)
            log(INFO, "Tap: see what it reveals with: fedsim audit %s", folder)
        return result

    def _expect_sums(self, summed: Summed) -> None:
        """A tap then records the sums, with the weights that they have."""
        self._recorder.expect_sums(summed)


def _attach(strategy: Strategy, recorder: Recorder, so_far: SoFar) -> None:
    """Record the calls of a round on the object itself."""
    configure, aggregate = strategy.configure_train, strategy.aggregate_train
    evaluate = strategy.aggregate_evaluate

    @wraps(configure)
    def configure_train(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if recorder.watch is not None and recorder.watch.stopped:
            raise TrainingStoppedError(f"the monitor of a Tap ends the training before round {server_round}")
        messages = listed(configure(server_round, arrays, config, grid))
        recorder.sent(arrays, messages)
        return messages

    @wraps(aggregate)
    def aggregate_train(
        server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = listed(replies)
        # Before the call: strategies may change replies in place.
        cohort = recorder.received(replies)
        result = aggregate(server_round, replies)
        if cohort is not None:
            recorder.record(cohort, result[0])
        so_far.trained(server_round, *result)
        return result

    @wraps(evaluate)
    def aggregate_evaluate(server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = evaluate(server_round, replies)
        so_far.evaluated(server_round, metrics)
        return metrics

    replace_method(strategy, "configure_train", configure_train)
    replace_method(strategy, "aggregate_train", aggregate_train)
    replace_method(strategy, "aggregate_evaluate", aggregate_evaluate)
