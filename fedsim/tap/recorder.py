"""From Flower's messages to recorded rows: one round at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import WARNING
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.logger import log
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.server.attachment import Summed, SummedReply
from fedsim.tap.exposure.monitor import Watch
from fedsim.tap.layout import Arrays, Layout, aligned, arrays_in
from fedsim.tap.log import Recording, TapLog

Replies = Literal["models", "updates"]
"""What clients return: trained models, as in most Flower apps, or differences to the model that they got."""


@dataclass
class Cohort:
    """The replies of a round that fit: their weighted total (dim,), their nodes and their total weight."""

    total: NDArray[np.float64]
    weight: float = 0.0
    nodes: list[int] = field(default_factory=list)
    updates: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    samples: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """What the monitor looks at."""


class Recorder:
    """Turns what was sent and what came back into rows of a log.

    A reply that cannot be part of the sum, such as one with other shapes, is left out with a warning. If that
    holds for every reply of the first round, the settings are wrong: a `UserError`.
    """

    def __init__(
        self,
        tap_log: TapLog,
        recording: Recording,
        *,
        replies: Replies,
        skip: Sequence[str],
        watch: Watch | None = None,
    ) -> None:
        self.watch = watch
        self.log, self._recording, self._replies, self._skip = tap_log, recording, replies, tuple(skip)
        self._sent: dict[int, Arrays] = {}
        self._model: dict[str, NDArray[np.generic]] = {}

    def expect_sums(self, summed: Summed) -> None:
        """A `UserError` if the recording needs more than sums with these weights."""
        settings = {
            "weighted_by": (self._recording.weighted_by, summed.weighted_by),
            "replies": (self._replies, "models"),
        }
        for name, (value, expected) in settings.items():
            if value != expected:
                raise UserError(f"Tap({name}={value!r}) inside secure aggregation: expected {expected!r}")
        if self._recording.truth == "updates":
            raise UserError("Tap(truth='updates') inside secure aggregation: single updates are hidden there")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which the monitor may start processes; they end with it."""
        try:
            yield
        finally:
            if self.watch is not None:
                self.watch.end()

    def sent(self, model: ArrayRecord, messages: Sequence[Message]) -> None:
        """Remember what every node was sent in this round, before anybody can change it."""
        if self._recording.rows == "model":
            self._model = {name: array.numpy() for name, array in model.items()}
        if self._replies == "updates":
            return
        read: dict[tuple[int, ...], Arrays] = {}  # strategies send the same record to every node
        self._sent = {}
        for message in messages:
            content = message.content
            parts = tuple(id(record) for record in content.values() if isinstance(record, ArrayRecord))
            if parts not in read:
                read[parts] = arrays_in(content)
            self._sent[message.metadata.dst_node_id] = read[parts]

    def received(self, replies: Sequence[Message]) -> Cohort | None:
        """Add up the replies of a round; None if there is nothing to record yet."""
        refused = []
        cohort: Cohort | None = None
        # In the order of their nodes: when a reply arrived is nobody's business, and the sum is reproducible.
        for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
            if reply.has_error():
                continue
            node = reply.metadata.src_node_id
            nodes = reply.members if isinstance(reply, SummedReply) else (node,)
            weight, reason = self._weight(reply)
            update, misfit = self._update(reply)
            reason = reason or misfit
            if cohort is not None and node in cohort.nodes:
                reason = "it is the second one of this node in a round"
            if reason:
                refused.append(f"the reply of node {node} is not recorded: {reason}")
                continue
            cohort = cohort or Cohort(np.zeros_like(update))
            cohort.total += weight * update
            cohort.weight += weight
            cohort.nodes.extend(nodes)
            if self._recording.truth == "updates":
                cohort.updates[node] = weight * update
            if self.watch is not None and not isinstance(reply, SummedReply):
                cohort.samples[node] = weight * self.watch.sampled(update)
        if refused and cohort is None and self.log.rounds == 0:
            raise UserError(f"Tap: {refused[0]}")
        for line in refused:
            log(WARNING, "Tap: %s", line)
        if cohort is None and self.log.rounds:
            cohort = Cohort(np.zeros(self.log.layout.dim if self.log.layout else 0))
        return cohort

    def record(self, cohort: Cohort, model: ArrayRecord | None) -> None:
        """Write the round down; `model` is what the strategy made of it, None if it keeps the old one."""
        assert self.log.layout is not None, "the first reply that fits fixes the layout"
        if self.log.continued:
            self._recognise(cohort.nodes)
            self.log.begin_again(self._model_row() if self._recording.rows == "model" else None)
        if model is not None and self._recording.rows == "model":
            self._model = {name: array.numpy() for name, array in model.items()}
        row = self._model_row() if self._recording.rows == "model" else cohort.total
        if self._recording.rows == "mean" and cohort.nodes:
            row = row / cohort.weight
        if self.watch is not None:
            self.watch.add(cohort.nodes, cohort.samples)
        self.log.append(row, nodes=cohort.nodes, weight=cohort.weight)
        if self._recording.truth == "updates":
            self.log.add_updates(cohort.updates)

    def _recognise(self, nodes: Sequence[int]) -> None:
        """Warn if a restarted server meets nobody whom the killed one knew."""
        if nodes and self.log.counts.clients.isdisjoint(map(str, nodes)):
            log(
                WARNING,
                "Tap: none of the %s nodes of this round took part before the restart. Flower's simulation "
                "draws new node ids for every run, and SuperNodes that start again may get new ones: the "
                "recording counts them as new clients. Record a restarted simulation in a new folder.",
                len(nodes),
            )

    def _weight(self, reply: Message) -> tuple[float, str]:
        """The weight of a reply, and why it has none."""
        if isinstance(reply, SummedReply):
            return reply.weight, ""
        key = self._recording.weighted_by
        if key is None:
            return 1.0, ""
        for record in reply.content.values():
            if isinstance(record, MetricRecord) and key in record:
                value = record[key]
                if isinstance(value, list) or not (math.isfinite(value) and value > 0):
                    return 0.0, f"its metric {key!r} is {value}, expected a number above 0"
                return float(value), ""
        return 0.0, f"it has no metric {key!r} to weight it by (Tap(weighted_by=None) counts each reply once)"

    def _update(self, reply: Message) -> tuple[NDArray[np.float64], str]:
        """The update of a reply (dim,), and why there is none; the first one fixes the layout."""
        none = np.zeros(0)
        sent = self._sent.get(reply.metadata.src_node_id, {}) if self._replies == "models" else None
        arrays = aligned(reply.content, sent or {})
        if self.log.layout is None:
            recorded = arrays
            if self._recording.rows == "model":
                recorded = {key: array for key, array in arrays.items() if key[1] in self._model}
            layout = Layout.of(recorded, sent, self._skip)
            if not layout.places:
                return none, (
                    "it has no float array of the same name and shape as the model that was sent"
                    if sent is not None
                    else "it has no float array"
                )
            if layout.misfit(arrays):
                return none, layout.misfit(arrays)
            self.log.begin(layout, self._model_row(layout) if self._recording.rows == "model" else None)
        else:
            layout = self.log.layout
        if reason := layout.misfit(arrays):
            return none, reason
        update = layout.row(arrays)
        if sent is None:
            return update, ""
        if reason := layout.misfit(sent):
            return none, f"in the model that was sent, {reason}"
        return update - layout.row(sent), ""

    def _model_row(self, layout: Layout | None = None) -> NDArray[np.float64]:
        layout = layout or self.log.layout
        assert layout is not None
        return layout.row({(place.record, place.name): self._model[place.name] for place in layout.places})
