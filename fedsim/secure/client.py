"""The client's part of secure sums: a mod that masks what leaves the device, and the answers with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from pydantic import ValidationError

from fedsim.flower import config_in
from fedsim.secure.calls import (
    SECURE_SUM,
    TERMS,
    UnsendableError,
    agreed_terms,
    layout_of,
    metric_of,
    plain,
    sent_model,
)
from fedsim.secure.terms import Terms, checked
from fedsim.tap.layout import Arrays, aligned
from fedsim.trusted.masking.device_side import MASKING, MaskingDevice, last_round, masked_reply
from fedsim.trusted.masking.enrolment import ENROL, ENROLMENT_ANSWERS
from fedsim.trusted.masking.errors import ContradictionError
from fedsim.trusted.masking.fixed_point import OutOfRangeError, Words
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.replies import UNSENDABLE

LAST_ROUND = "last-round"
THRESHOLD, MINIMUM_COHORT, WEIGHTED_BY = "threshold", "minimum-cohort", "weighted-by"
"""What a client says at enrolment."""


@dataclass(frozen=True)
class SecureMod:
    """A client mod that lets updates leave the device under masks only.

    Put it first in the list of mods, so that it is outermost: other mods then change the update before it is
    masked. The reply to a call for training holds n·update, n and n·metric as one masked vector, and nothing
    else. A call without masks is refused.

    The settings are the client's own, and no server can weaken them. `threshold` is the part of a cohort that
    has to deliver, `minimum_cohort` the fewest updates in a sum, and `weighted_by` the only metric that the
    server may weight by.
    """

    threshold: float = 0.67
    minimum_cohort: int = 3
    weighted_by: str | None = "num-examples"
    _device: MaskingDevice = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        masked = checked(Masked, "SecureMod", threshold=self.threshold, minimum_cohort=self.minimum_cohort)
        object.__setattr__(self, "_device", MaskingDevice(masked))

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Mask the reply to a call for training, and to one for evaluation if the server asks for it.

        The questions of the protocol are answered here, so that the mods inside never see them.
        """
        kind, _, action = message.metadata.message_type.partition(".")
        if kind == "query":
            answer = self.answers.get(action, call_next)
            reply = answer(message, context)
            return self._vouched(reply, context) if action == ENROL else reply
        if MASKING not in message.content:
            return call_next(message, context) if kind == "evaluate" else _refused(message)
        return self._masked(message, context, call_next)

    @property
    def answers(self) -> dict[str, ClientAppCallable]:
        """The questions of the protocol, and how they are answered."""
        return ENROLMENT_ANSWERS | self._device.answers

    def _masked(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        order = config_in(message.content, MASKING)
        packed = str(config_in(message.content, SECURE_SUM).get(TERMS, ""))
        message.content = plain(message.content)
        terms = self._accepted(packed)
        digest = agreed_terms(message.metadata.message_type, message.content, packed)
        # Before the app is called: it may train in place.
        sent = sent_model(message.content)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            words = _encoded(reply, sent, terms)
        except (OutOfRangeError, UnsendableError) as error:
            reason = f"the reply cannot be added up: {error}"
            return Message(Error(UNSENDABLE, reason), reply_to=message)
        self._device.mask(words, order, context, digest)
        return masked_reply(words, message)

    def _accepted(self, packed: str) -> Terms:
        """The terms of a sum, unless the server weights by a metric of its own choice.

        A metric that is 0 for all clients but one would single that client out.
        """
        try:
            terms = Terms.model_validate_json(packed)
        except ValidationError as error:
            raise ContradictionError("a call for training lacks the terms of the sum") from error
        if terms.weighted_by not in (None, self.weighted_by):
            raise ContradictionError(
                f"the server weights by {terms.weighted_by!r}, this client allows {self.weighted_by!r}"
            )
        return terms

    def _vouched(self, reply: Message, context: Context) -> Message:
        """The answer to enrolment, with this client's settings: they show that the mod is in place."""
        reply.content[SECURE_SUM] = ConfigRecord(
            {
                THRESHOLD: float(self.threshold),
                MINIMUM_COHORT: self.minimum_cohort,
                WEIGHTED_BY: self.weighted_by or "",
                LAST_ROUND: last_round(context),
            }
        )
        return reply


secure_mod = SecureMod()
"""The mod with its default settings."""


def answer_secure_aggregation(app: ClientApp, mod: SecureMod = secure_mod) -> ClientApp:
    """Teach an app the questions of the protocol, by the settings of its mod; the same app."""
    for query, answer in mod.answers.items():
        app.query(query)(answer)
    return app


def _encoded(reply: Message, sent: Arrays, terms: Terms) -> Words:
    """The words of a reply to the call that carried the model `sent`."""
    update = np.zeros(0)
    if terms.arrays:
        layout, trained = layout_of(sent), aligned(reply.content, sent)
        if reason := layout.misfit(trained):
            raise UnsendableError(reason)
        update = layout.row(trained) - layout.row(sent)
    weight = 1.0 if terms.weighted_by is None else metric_of(reply, terms.weighted_by)
    return terms.encode(update, weight, [metric_of(reply, name) for name in terms.metrics])


def _refused(message: Message) -> Message:
    reason = (
        "this client sends updates under masks only, and the call came without them: "
        "put SecureAggregation around the server's strategy"
    )
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)
