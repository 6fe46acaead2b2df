"""The device's part of masked aggregation, from its round keys to the shares that unmask a sum.

A device trusts the server with nothing but enrolment. It goes through the steps of a round once and in order:
keys, shares, the masked vector, a signature under the list of devices that delivered, and shares for
unmasking. It checks every order against its own settings, and refuses with a named error (`errors`). The
state of a round lives in its Flower context; secrets leave it as soon as they have done their work.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedsim.flower import (
    WEIGHT,
    LazyArray,
    client_number,
    config_in,
    metrics_in,
    record_vector,
    round_number,
)
from fedsim.trusted.masking.enrolment import Identity
from fedsim.trusted.masking.errors import (
    CohortTooSmallError,
    ContradictionError,
    OutOfTurnError,
    TruncatedError,
)
from fedsim.trusted.masking.fixed_point import OutOfRangeError, Words
from fedsim.trusted.masking.keys import (
    AGREED_BYTES,
    Binding,
    agreed,
    commitment,
    mask_key_pair,
    own_mask_key,
)
from fedsim.trusted.masking.letters import LETTER_BYTES, Shares
from fedsim.trusted.masking.masks import add_masks
from fedsim.trusted.masking.neighbours import Neighbourhood
from fedsim.trusted.masking.packing import (
    packed_seats,
    rows,
    unpacked_seats,
    unpacked_set,
)
from fedsim.trusted.masking.roster import Entry, Roster
from fedsim.trusted.masking.secret_sharing import SECRET_BYTES, SHARE_BYTES, split
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.masking.signatures import SIGNATURE_BYTES, delivered_statement, keys_statement, verify
from fedsim.trusted.replies import UNSENDABLE

KEYS, SHARES, CONFIRM, UNMASK = "masking_keys", "masking_shares", "masking_confirm", "masking_unmask"
"""The queries of a round, in their order; training comes after the second."""

MASKING = "masking"
"""Name of the record that carries the protocol, in messages and in a device's context."""

MASKED_VECTOR = "masked"
"""Key of the array that a masked reply carries."""

T = TypeVar("T")


class Step(IntEnum):
    """The last thing that a device did in a round."""

    GAVE_KEYS = 1
    GAVE_SHARES = 2
    SENT = 3
    SIGNED = 4
    DONE = 5


@dataclass(frozen=True)
class MaskingDevice:
    """Answers the server by its own settings."""

    settings: Masked

    @property
    def answers(self) -> dict[str, ClientAppCallable]:
        """The queries of a round, and how they are answered."""
        return {
            KEYS: self._new_keys,
            SHARES: self._share_secrets,
            CONFIRM: self._confirm,
            UNMASK: self._help_unmask,
        }

    def masking_mod(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """A client mod that replaces the update and the weight of a reply by one masked vector."""
        reply = call_next(message, context)
        if message.metadata.message_type != "train" or reply.has_error():
            return reply
        weight = int(metrics_in(reply.content, "metrics")[WEIGHT])  # type: ignore[arg-type]
        try:
            words = self.settings.fixed_point.encode(record_vector(reply), weight)
        except OutOfRangeError as error:
            who = f"client {client_number(context)}, round {round_number(message) - 1}"
            return Message(Error(UNSENDABLE, f"federation.aggregation: {who}: {error}"), reply_to=message)
        self.mask(words, _order(message), context)
        return masked_reply(words, message)

    def _new_keys(self, message: Message, context: Context) -> Message:
        """Fresh keys, once per round: one pair to agree on masks, one to seal letters with."""
        identity, server_round = Identity.recall(context), _round(_order(message))
        last = last_round(context)
        if server_round <= last:
            raise OutOfTurnError(f"keys for round {server_round}, after those for round {last}")
        seed, talk_key = os.urandom(SECRET_BYTES), X25519PrivateKey.generate()
        mask_public = mask_key_pair(seed).public_key().public_bytes_raw()
        talk_public = talk_key.public_key().public_bytes_raw()
        signature = identity.key.sign(keys_statement(server_round, identity.client, mask_public, talk_public))
        entry = Entry(identity.client, mask_public, talk_public, signature)
        _keep(
            context,
            {
                "round": server_round,
                "step": int(Step.GAVE_KEYS),
                "entry": entry.packed,
                "mask-seed": seed,
                "talk-key": talk_key.private_bytes_raw(),
            },
        )
        return _answer(message, {"entry": entry.packed})

    def _share_secrets(self, message: Message, context: Context) -> Message:
        """Draw the neighbours and the seed of the own mask; give each neighbour its shares in a letter."""
        state, identity = _recall(_order(message), context, Step.GAVE_KEYS), Identity.recall(context)
        roster = Roster(_field(_order(message), "roster"))
        seat, binding = roster.seat_of(identity.client), Binding(state["round"], roster.digest)
        if roster[seat].packed != state["entry"]:
            raise ContradictionError(f"the keys at seat {seat} are not those of the device that sits there")
        if len(roster) < self.settings.needed(len(roster)):
            raise CohortTooSmallError(f"a cohort of {len(roster)} devices hides too little")
        shape = self.settings.neighbourhood(len(roster))
        neighbours = _drawn([other for other in range(len(roster)) if other != seat], shape.size)
        own_seed, points = os.urandom(SECRET_BYTES), [other + 1 for other in neighbours]
        own_shares = split(own_seed, points, shape.needed)
        key_shares = split(state["mask-seed"], points, shape.needed)
        talk_key = X25519PrivateKey.from_private_bytes(state["talk-key"])
        letters, secrets = [], []
        for other, *pair in zip(neighbours, own_shares, key_shares, strict=True):
            entry = roster[other]
            entry.verify(state["round"], identity.registry.public_key(entry.client))
            secrets.append(agreed(talk_key, entry.talk_public))
            letters.append(Shares(*pair).sealed(binding.letter_key(secrets[-1], seat, other)))
        own = {
            "roster": roster.packed,
            "own-seed": own_seed,
            "neighbours": packed_seats(neighbours),
            "agreed": b"".join(secrets),
        }
        _keep(context, {**state, **own, "step": int(Step.GAVE_SHARES)})
        return _answer(
            message,
            {
                "neighbours": packed_seats(neighbours),
                "letters": b"".join(letters),
                "commitment": commitment(own_seed),
            },
        )

    def mask(self, words: Words, order: Mapping[str, Any], context: Context, terms: bytes = b"") -> None:
        """Add the own mask, and one for each neighbour and for each device that drew this one.

        `terms` is whatever the devices of a cohort have to agree on, such as the model that they were sent.
        Masks of devices with different terms do not cancel, so nobody learns a sum of their words.
        """
        state = _recall(order, context, Step.GAVE_SHARES)
        place = self._place(state, context)
        joined = unpacked_set(_field(order, "joined"), len(place.roster))
        senders = unpacked_seats(_field(order, "senders"), len(place.roster))
        letters = rows(_field(order, "letters"), LETTER_BYTES, len(senders))
        neighbours = unpacked_seats(state["neighbours"], len(place.roster))
        if place.seat not in joined or not joined.issuperset(senders) or place.seat in senders:
            raise ContradictionError("the devices that joined are this one and all who sent it letters")
        if len(joined) < place.delivering or len(joined.intersection(neighbours)) < place.shape.needed:
            raise CohortTooSmallError(f"masks of {len(joined)} devices hide too little")
        talk_key = X25519PrivateKey.from_private_bytes(state["talk-key"])
        mask_key = mask_key_pair(state["mask-seed"])
        letter_from = dict(zip(senders, letters, strict=True))
        secret_with = dict(zip(neighbours, rows(state["agreed"], AGREED_BYTES, len(neighbours)), strict=True))
        held: dict[int, Shares] = {}
        keys: dict[bool, list[bytes]] = {True: [own_mask_key(state["own-seed"])], False: []}
        # The keys of neighbours are verified. Those of other senders need not be: a mask agreed on with
        # a wrong key cancels with nothing, so it spoils the sum; and it is not needed for hiding.
        for other in joined.intersection(neighbours).union(senders):
            entry = place.roster[other]
            if other in letter_from:
                secret = secret_with.get(other) or agreed(talk_key, entry.talk_public)
                key = place.binding.letter_key(secret, other, place.seat)
                held[other] = Shares.opened(key, letter_from[other], other)
            pair = place.binding.pair_mask_key(mask_key, entry.mask_public, (place.seat, other), terms)
            keys[place.seat < other].append(pair)
        add_masks(words, plus=keys[True], minus=keys[False])
        # Secrets have done their work: others hold shares of them.
        _keep(
            context,
            {
                "round": state["round"],
                "step": int(Step.SENT),
                "roster": state["roster"],
                "joined": order["joined"],
                "senders": order["senders"],
                "held": b"".join(held[sender].packed for sender in senders),
            },
        )

    def _confirm(self, message: Message, context: Context) -> Message:
        """Sign the list of devices that delivered, once; the signatures show that all were told the same."""
        order = _order(message)
        state, packed = _recall(order, context, Step.SENT), _field(order, "delivered")
        place, identity = self._place(state, context), Identity.recall(context)
        delivered = unpacked_set(packed, len(place.roster))
        if place.seat not in delivered:
            raise ContradictionError("this device delivered, and is said to have dropped out")
        if not delivered <= unpacked_set(state["joined"], len(place.roster)):
            raise ContradictionError("a device that never joined is said to have delivered")
        if len(delivered) < place.delivering:
            raise CohortTooSmallError(f"a sum of {len(delivered)} updates hides too little")
        _keep(context, {**state, "step": int(Step.SIGNED), "delivered": packed})
        statement = delivered_statement(place.binding, state["joined"], packed)
        return _answer(message, {"signature": identity.key.sign(statement)})

    def _help_unmask(self, message: Message, context: Context) -> Message:
        """One share for each device whose letter this one holds: of the own mask, or of the mask key.

        Devices that delivered lose their own mask, devices that dropped out their mask key: never both.
        """
        order = _order(message)
        state = _recall(order, context, Step.SIGNED)
        place, identity = self._place(state, context), Identity.recall(context)
        delivered = unpacked_set(state["delivered"], len(place.roster))
        signers = unpacked_seats(_field(order, "signers"), len(place.roster))
        signatures = rows(_field(order, "signatures"), SIGNATURE_BYTES, len(signers))
        if not delivered.issuperset(signers):
            raise ContradictionError("a device that did not deliver is said to have signed")
        if len(signers) < place.delivering:
            raise CohortTooSmallError(f"{len(signers)} devices confirm the list, expected {place.delivering}")
        statement = delivered_statement(place.binding, state["joined"], state["delivered"])
        signed = list(zip(signers, signatures, strict=True))
        for signer, signature in _drawn(signed, min(place.shape.checked, len(signed))):
            client = place.roster[signer].client
            whose = f"the devices that delivered, in the words of client {client},"
            verify(identity.registry.public_key(client), signature, statement, whose)
        senders = unpacked_seats(state["senders"], len(place.roster))
        held = map(Shares.parse, rows(state["held"], 2 * SHARE_BYTES, len(senders)))
        shares = b"".join(
            each.own_mask if sender in delivered else each.mask_key
            for sender, each in zip(senders, held, strict=True)
        )
        _keep(context, {"round": state["round"], "step": int(Step.DONE)})
        return _answer(message, {"shares": shares})

    def _place(self, state: Mapping[str, Any], context: Context) -> _Place:
        roster = Roster(state["roster"])
        return _Place(
            roster,
            roster.seat_of(Identity.recall(context).client),
            Binding(state["round"], roster.digest),
            self.settings.needed(len(roster)),
            self.settings.neighbourhood(len(roster)),
        )


@dataclass(frozen=True)
class _Place:
    """Where a device sits in the cohort of a round, and how many of that cohort have to deliver."""

    roster: Roster
    seat: int
    binding: Binding
    delivering: int
    shape: Neighbourhood


def _drawn(among: list[T], size: int) -> list[T]:
    """So many of them, drawn with the operating system's randomness; all of them in their order."""
    return among if size == len(among) else random.SystemRandom().sample(among, size)


def masked_reply(words: Words, message: Message) -> Message:
    """The reply that carries masked words, and nothing else."""
    arrays = ArrayRecord()
    arrays[MASKED_VECTOR] = LazyArray(words)
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def last_round(context: Context) -> int:
    """The last round that the device gave keys for; 0 if there was none."""
    return int(_kept(context).get("round", 0))


def _order(message: Message) -> Mapping[str, Any]:
    return config_in(message.content, MASKING)


def _field(order: Mapping[str, Any], key: str) -> bytes:
    value = order.get(key)
    if not isinstance(value, bytes):
        raise TruncatedError(f"a message lacks {key!r}")
    return value


def _answer(message: Message, content: dict[str, Any]) -> Message:
    return Message(RecordDict({MASKING: ConfigRecord(content)}), reply_to=message)


def _keep(context: Context, state: dict[str, Any]) -> None:
    context.state[MASKING] = ConfigRecord(state)


def _kept(context: Context) -> dict[str, Any]:
    return dict(config_in(context.state, MASKING))


def _round(order: Mapping[str, Any]) -> int:
    number = order.get("round")
    if not isinstance(number, int):
        raise TruncatedError("a message lacks 'round'")
    return number


def _recall(order: Mapping[str, Any], context: Context, after: Step) -> dict[str, Any]:
    """The state of the round, which has to be right after this step."""
    state, number = _kept(context), _round(order)
    if state.get("round") != number or state["step"] != after:
        last = Step(state["step"]).name.lower().replace("_", " ") if state else "nothing"
        raise OutOfTurnError(
            f"a message for round {number}, step {after + 1}; "
            f"the last step was {last} in round {state.get('round', 0)}"
        )
    return state
