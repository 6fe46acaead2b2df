"""One secure round: from the messages that a strategy sends to the one reply that it gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from logging import WARNING

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log

from fedsim.core.errors import UserError
from fedsim.secure.calls import SECURE_SUM, TERMS, agreed_terms, layout_of, sent_model
from fedsim.secure.fleet import Send, in_one_line
from fedsim.secure.terms import Terms, Total
from fedsim.server.attachment import SummedReply
from fedsim.trusted.masking.device_side import MASKING
from fedsim.trusted.masking.errors import TruncatedError
from fedsim.trusted.masking.protocol import ProtocolRound, masked_words
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.replies import UNSENDABLE


class SecureRound:
    """A round in progress: `calls` are a strategy's own messages, which all carry the same content.

    A client that fails is a dropout. With too many of them the round is void. The one reply has the mean of
    the models and of the metrics, and the total weight under `weight_key`.
    """

    def __init__(
        self,
        calls: Sequence[Message],
        *,
        terms: Terms,
        weight_key: str,
        masked: Masked,
        numbers: Mapping[int, int],
        number: int,
        send: Send,
    ) -> None:
        self._terms, self._weight_key, self._call = terms, weight_key, calls[0]
        self._packed = terms.model_dump_json()
        self._digest = _same_digest(calls, self._packed)
        self._model = sent_model(self._call.content) if terms.arrays else {}
        self._layout = layout_of(self._model)
        self.unsendable: list[str] = []
        """Why clients could not send what they have."""
        by_node = {call.metadata.dst_node_id: call for call in calls}
        nodes = sorted(by_node, key=numbers.__getitem__)
        self._protocol = ProtocolRound(
            masked, numbers, number, nodes, lambda questions: self._arrived(send(questions))
        )
        self.messages = [
            _with_orders(by_node[node], order, self._packed) for node, order in self._protocol.orders.items()
        ]

    def close(self, replies: Iterable[Message]) -> SummedReply | None:
        """The one reply that stands for all that arrived; None if the round is void."""
        arrived = {node: reply for node, reply in self._arrived(replies).items() if self._fits(node, reply)}
        summed = self._protocol.total(arrived, self._digest)
        if summed is None:
            return None
        words, members = summed
        total = self._terms.decode(words, len(members))
        if total.shortened:
            log(
                WARNING,
                "SecureAggregation: %s of %s updates were longer than clip=%s, and were shortened to it",
                total.shortened,
                len(members),
                self._terms.clip,
            )
        reply = SummedReply(self._content(total), reply_to=self._call)
        reply.members, reply.weight = members, total.weight
        return reply

    def _arrived(self, replies: Iterable[Message]) -> dict[int, Message]:
        """Node → reply, without those that failed; their reasons are logged."""
        arrived = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            if not reply.has_error():
                arrived[node] = reply
                continue
            reason = in_one_line(reply.error.reason)
            log(WARNING, "SecureAggregation: client %s drops out of the round: %s", node, reason)
            if reply.error.code == UNSENDABLE:
                self.unsendable.append(f"client {node}: {reason}")
        return arrived

    def _fits(self, node: int, reply: Message) -> bool:
        """Whether a reply holds as many words as it should, of the right kind."""
        try:
            words = masked_words(reply)
        except TruncatedError:
            words = np.zeros(0, dtype=np.uint8)
        bits, length = self._terms.fixed_point.modulus_bits, self._terms.words(self._layout.dim)
        if words.dtype == f"uint{bits}" and words.shape == (length,):
            return True
        log(
            WARNING,
            "SecureAggregation: client %s drops out: its reply is not masked; secure_mod has to be "
            "the first mod of its app",
            node,
        )
        return False

    def _content(self, total: Total) -> RecordDict:
        """The mean model and the mean metrics, as a client would have sent them, with the total weight."""
        content = RecordDict()
        arrays = self._layout.moved(self._model, total.entries / total.weight)
        for (record, name), array in arrays.items():
            if record not in content:
                content[record] = ArrayRecord()
            content[record][name] = Array(np.asarray(array))  # type: ignore[assignment]
        weight = int(total.weight) if total.weight == int(total.weight) else total.weight
        means = {name: value / total.weight for name, value in total.metrics.items()}
        content["metrics"] = MetricRecord({**means, self._weight_key: weight})
        return content


def _same_digest(calls: Sequence[Message], terms: str) -> bytes:
    """The digest of all calls; a `UserError` if they differ."""
    digests: dict[int, bytes] = {}  # strategies send the same record to every node
    for call in calls:
        if id(call.content) not in digests:
            digests[id(call.content)] = agreed_terms(call.metadata.message_type, call.content, terms)
    if len(set(digests.values())) > 1:
        raise UserError(
            "SecureAggregation: the strategy sends clients of one round different models or settings; "
            "expected the same for all, because a server could single a client out"
        )
    return next(iter(digests.values()))


def _with_orders(call: Message, order: ConfigRecord, terms: str) -> Message:
    content = RecordDict({**call.content, MASKING: order, SECURE_SUM: ConfigRecord({TERMS: terms})})
    metadata = call.metadata
    return Message(
        content, metadata.dst_node_id, metadata.message_type, ttl=metadata.ttl, group_id=metadata.group_id
    )
