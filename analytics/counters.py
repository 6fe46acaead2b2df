"""The device's side of telemetry: each device counts its own participations and answers when asked.

Counters live in the device's Flower context. They count rounds of training, whatever became of the
update afterwards.
"""

from __future__ import annotations

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedsim.flower import client_number

COUNT = "query.participations"
"""Message type that asks a device how often it trained since it last answered."""

_STATE = "participations"


def counting_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A client mod: add one to this device's counter whenever it has trained."""
    reply = call_next(message, context)
    if message.metadata.message_type == "train":
        context.state[_STATE] = MetricRecord({"since-last-answer": _counter(context) + 1})
    return reply


def answer_count_queries(app: ClientApp) -> None:
    """Teach an app to answer `COUNT`: its client number, and its counter, which then starts again."""

    @app.query("participations")
    def participations(message: Message, context: Context) -> Message:
        answer = MetricRecord({"client": client_number(context), "count": _counter(context)})
        context.state[_STATE] = MetricRecord({"since-last-answer": 0})
        return Message(RecordDict({"answer": answer}), reply_to=message)


def _counter(context: Context) -> int:
    if _STATE not in context.state:
        return 0
    return int(context.state.metric_records[_STATE]["since-last-answer"])  # type: ignore[arg-type]
