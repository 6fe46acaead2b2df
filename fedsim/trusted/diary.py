"""The device's diary: the updates that a simulated device really sent, kept where no server looks.

The truth cannot come from the server's side, because under masking no update ever reaches it. So every
device keeps the sum of its own updates in its Flower context. The simulator reads these diaries once the run
is over; no real federation has such a reader. A device cannot know whether its latest update became part of a
sum, so the simulator tells it to strike out an update that did not. Until then the device keeps the latest
update as it was sent. It adds it to the sum when it trains again, at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedsim.flower import add_to, client_number, metrics_in, parameters_of, round_number

_READ, _STRIKE = "read_diary", "strike_diary"
_TOTAL, _LATEST, _NOTES = "diary-total", "diary-latest", "diary-notes"
_LATEST_ROUND, _ROUNDS = "latest-round", "rounds"
_NO_ROUND = 0
"""Flower counts rounds from 1."""


@dataclass(frozen=True)
class Diary:
    """`total` (dim,) float32 is the sum of the client's updates over `rounds` rounds; None for 0 rounds."""

    client: int
    rounds: int
    total: NDArray[np.float32] | None


def diary_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A client mod outside the defences: keep the update that goes into the sum of a round."""
    reply = call_next(message, context)
    if message.metadata.message_type == "train" and not reply.has_error():
        settle(context)
        context.state[_LATEST] = reply.content["arrays"]
        _notes(context)[_LATEST_ROUND] = round_number(message)
    return reply


def answer_diary_queries(app: ClientApp) -> None:
    """Register the two queries of an app: strike out the latest update, and hand out the diary."""

    @app.query(_STRIKE)
    def strike(message: Message, context: Context) -> Message:
        notes = _notes(context)
        if notes[_LATEST_ROUND] == metrics_in(message.content, "strike")["round"]:
            del context.state[_LATEST]
            notes[_LATEST_ROUND] = _NO_ROUND
        return Message(RecordDict(), reply_to=message)

    @app.query(_READ)
    def read(message: Message, context: Context) -> Message:
        settle(context)
        notes = MetricRecord({"client": client_number(context), "rounds": _notes(context)[_ROUNDS]})
        content = RecordDict({"notes": notes})
        if _TOTAL in context.state:
            content["total"] = context.state.array_records[_TOTAL]
        return Message(content, reply_to=message)


def settle(context: Context) -> None:
    """Add the latest update to the total; nobody can strike it out any more."""
    notes = _notes(context)
    if notes[_LATEST_ROUND] == _NO_ROUND:
        return
    add_to(context.state, _TOTAL, parameters_of(context.state.pop(_LATEST)))
    notes[_LATEST_ROUND] = _NO_ROUND
    notes[_ROUNDS] += 1  # type: ignore[operator]


def strike_out(grid: Grid, server_round: int, nodes: Iterable[int]) -> None:
    """Tell devices that their update of this round is not part of any sum."""
    content = RecordDict({"strike": MetricRecord({"round": server_round})})
    for reply in grid.send_and_receive([Message(content, node, f"query.{_STRIKE}") for node in nodes]):
        _answered(reply)


def read_diaries(grid: Grid) -> list[Diary]:
    """Every device's diary, in no particular order."""
    questions = [Message(RecordDict(), node, f"query.{_READ}") for node in grid.get_node_ids()]
    return [_diary(_answered(reply)) for reply in grid.send_and_receive(questions)]


def _diary(content: RecordDict) -> Diary:
    notes = content.metric_records["notes"]
    total = parameters_of(content["total"]) if "total" in content else None
    return Diary(int(notes["client"]), int(notes["rounds"]), total)  # type: ignore[arg-type]


def _answered(reply: Message) -> RecordDict:
    if reply.has_error():
        raise RuntimeError(f"node {reply.metadata.src_node_id} has no diary: {reply.error.reason}")
    return reply.content


def _notes(context: Context) -> MetricRecord:
    """The round of the latest update, and the number of rounds in the total; changed in place."""
    if _NOTES not in context.state:
        context.state[_NOTES] = MetricRecord({_LATEST_ROUND: _NO_ROUND, _ROUNDS: 0})
    return metrics_in(context.state, _NOTES)
