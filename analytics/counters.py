"""The device's side of telemetry: each device counts its own participations and answers when asked.

Counters live in the device's Flower context. They count rounds of training, whatever became of the
update afterwards.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedsim.flower import client_number, metrics_in

ENROL = "query.enrol"
"""Message type that asks a device for its number, so that it can be asked by name."""

COUNT = "query.participations"
"""Message type that asks a device how often it trained, in all and since it last answered."""

_STATE = "participations"


def enrolment(node: int) -> Message:
    """The request to a node to say who it is."""
    return Message(RecordDict(), node, ENROL)


def question(node: int, server_round: int) -> Message:
    """The question to a node after a round (counted from 1, so that it is the number of rounds so far)."""
    return Message(RecordDict({"question": ConfigRecord({"rounds": server_round})}), node, COUNT)


def counting_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A client mod: add one to this device's counter whenever it has trained."""
    reply = call_next(message, context)
    if message.metadata.message_type == "train":
        _counter(context)["total"] += 1  # type: ignore[operator]
    return reply


def answer_count_queries(app: ClientApp) -> None:
    """Teach an app to answer `ENROL` and `COUNT`.

    To `COUNT` it says its client number, its counter since its last answer, the round of that answer
    (`since`, counted as rounds so far), and its counter from the beginning (`total`).
    """

    @app.query("enrol")
    def enrol(message: Message, context: Context) -> Message:
        answer = MetricRecord({"client": client_number(context)})
        return Message(RecordDict({"answer": answer}), reply_to=message)

    @app.query("participations")
    def participations(message: Message, context: Context) -> Message:
        counter = _counter(context)
        total = counter["total"]
        answer = MetricRecord(
            {
                "client": client_number(context),
                "since": counter["answered-rounds"],
                "count": total - counter["answered-total"],  # type: ignore[operator]
                "total": total,
            }
        )
        asked = message.content["question"]
        assert isinstance(asked, ConfigRecord)
        counter["answered-rounds"] = int(asked["rounds"])  # type: ignore[arg-type]
        counter["answered-total"] = total
        return Message(RecordDict({"answer": answer}), reply_to=message)


def _counter(context: Context) -> MetricRecord:
    """Participations in all, and when the device last answered, with how many; changed in their place."""
    if _STATE not in context.state:
        context.state[_STATE] = MetricRecord({"total": 0, "answered-total": 0, "answered-rounds": 0})
    return metrics_in(context.state, _STATE)
