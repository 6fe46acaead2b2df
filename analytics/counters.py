"""The device's side of telemetry: each device counts its own participations and answers when asked.

A counter lives in the device's Flower context. It counts rounds of training, whether or not updates arrive.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedsim.flower import client_number, metrics_in

ENROL_QUERY = "query.enrol"
"""Message type that asks a device for its client number."""

COUNT = "query.participations"
"""Message type that asks a device how often it has trained, in total and since its last answer."""

_STATE = "participations"


def enrolment(node: int) -> Message:
    """The message that asks a node for its client number."""
    return Message(RecordDict(), node, ENROL_QUERY)


def question(node: int, server_round: int) -> Message:
    """The message that asks a node for its count; `server_round` is the number of rounds so far."""
    return Message(RecordDict({"question": ConfigRecord({"rounds": server_round})}), node, COUNT)


def counting_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A client mod: add one to this device's counter after each training."""
    reply = call_next(message, context)
    if message.metadata.message_type == "train":
        _counter(context)["total"] += 1  # type: ignore[operator]
    return reply


def answer_count_queries(app: ClientApp) -> None:
    """Make an app answer `ENROL_QUERY` and `COUNT`.

    The answer to `COUNT` has the client number, the participations since the last answer (`count`), the
    number of rounds at that answer (`since`), and the participations from the beginning (`total`).
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
    """This device's counter and its values at the last answer, as a record that is changed in place."""
    if _STATE not in context.state:
        context.state[_STATE] = MetricRecord({"total": 0, "answered-total": 0, "answered-rounds": 0})
    return metrics_in(context.state, _STATE)
