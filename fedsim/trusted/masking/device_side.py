"""The device's part of masked aggregation, from its first key to the shares that unmask a sum.

Devices of a cohort know each other by their seats, 0..n-1. What a device must remember until the round is
over lives in its Flower context. It trusts the server with nothing: an order that would let the server
unmask a single update is a `ProtocolError`.
"""

from __future__ import annotations

import os
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, generate_key_pairs, public_key_to_bytes

from fedsim.flower import WEIGHT, client_number, record_vector, round_number
from fedsim.trusted.masking.fixed_point import OutOfRangeError, Words
from fedsim.trusted.masking.masks import SEED_BYTES, grown, key_from_secret, pair_mask, secret_of_key
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.replies import UNSENDABLE

KEYS, SHARES, UNMASK = "masking_keys", "masking_shares", "masking_unmask"
"""The queries, in the order of the protocol; training comes before the last."""

MASKING = "masking"
"""Name of the record that carries the protocol, in messages and in a device's context."""

MASKED_VECTOR = "masked"
"""Key of the array that a masked reply carries."""


class ProtocolError(RuntimeError):
    """The server asked for something that an honest server has no use for."""


def answer_masking_queries(app: ClientApp) -> None:
    """Teach an app the three queries of the protocol."""
    for name, answer in ((KEYS, _new_keys), (SHARES, _share_secrets), (UNMASK, _help_unmask)):
        app.query(name)(answer)


def masking_mod(settings: Masked) -> Mod:
    """A client mod that replaces the update and the weight of a reply by one masked vector."""

    def mask(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type != "train" or reply.has_error():
            return reply
        weight = int(reply.content.metric_records["metrics"][WEIGHT])  # type: ignore[arg-type]
        try:
            words = settings.fixed_point.encode(record_vector(reply), weight)
        except OutOfRangeError as error:
            who = f"client {client_number(context)}, round {round_number(message) - 1}"
            return Message(Error(UNSENDABLE, f"federation.aggregation: {who}: {error}"), reply_to=message)
        arrays = ArrayRecord({MASKED_VECTOR: Array(_masked(words, message, context))})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return mask


def _new_keys(message: Message, context: Context) -> Message:
    """Fresh keys for every round: one pair to agree on masks, one to talk to the others in private."""
    (mask_key, mask_public), (talk_key, talk_public) = generate_key_pairs(), generate_key_pairs()
    public = {
        "mask-public": public_key_to_bytes(mask_public),
        "talk-public": public_key_to_bytes(talk_public),
    }
    secret = {"mask-key": secret_of_key(mask_key), "talk-key": secret_of_key(talk_key)}
    _remember(context, {"round": round_number(message), **public, **secret})
    return _answer(message, public)


def _share_secrets(message: Message, context: Context) -> Message:
    """Draw the seed of the own mask; give everybody an encrypted share of it and of the key for masks."""
    state, order = _recall(message, context), _order(message)
    seat, talk_publics = order["seat"], order["talk-publics"]
    seats, threshold = len(talk_publics), order["threshold"]
    if "seed" in state:
        raise ProtocolError("shares of this round have been given out already")
    if order["mask-publics"][seat] != state["mask-public"] or talk_publics[seat] != state["talk-public"]:
        raise ProtocolError(f"the keys at seat {seat} are not the ones of the device that sits there")
    if len({*order["mask-publics"], *talk_publics}) != 2 * seats:
        raise ProtocolError("two devices have the same key")
    if not seats / 2 < threshold <= seats:
        raise ProtocolError(f"a threshold of {threshold} for {seats} devices protects nobody")
    seed = os.urandom(SEED_BYTES)
    seed_shares = create_shares(seed, threshold, seats)
    key_shares = create_shares(state["mask-key"], threshold, seats)
    talk_key = key_from_secret(state["talk-key"])
    ciphers, sealed = [b""] * seats, [b""] * seats
    for other, public in enumerate(talk_publics):
        if other != seat:
            ciphers[other] = generate_shared_key(talk_key, bytes_to_public_key(public))
            letter = share_keys_plaintext_concat(seat, other, seed_shares[other], key_shares[other])
            sealed[other] = encrypt(ciphers[other], letter)
    own = {"seed": seed, "seed-shares": [seed_shares[seat]], "key-shares": [key_shares[seat]]}
    _remember(context, {**state, **order, **own, "ciphers": ciphers, "holders": [seat]})
    return _answer(message, {"sealed": sealed})


def _masked(words: Words, message: Message, context: Context) -> Words:
    """Add the own mask and one for everybody who sent a share: only those can help to take theirs off."""
    state, order = _recall(message, context), _order(message)
    if "sent" in state:
        raise ProtocolError("this round's vector has been sent already")
    if len({*order["senders"], state["seat"]}) != len(order["senders"]) + 1:
        raise ProtocolError("every other device sends one share")
    seat, mask_key = state["seat"], key_from_secret(state["mask-key"])
    holders, seed_shares, key_shares = ([*state[key]] for key in ("holders", "seed-shares", "key-shares"))
    total = words + grown(state["seed"], words)
    for sender, sealed in zip(order["senders"], order["sealed"], strict=True):
        letter = decrypt(state["ciphers"][sender], sealed)
        source, destination, seed_share, key_share = share_keys_plaintext_separate(letter)
        if (source, destination) != (sender, seat):
            raise ProtocolError(f"a share from seat {source} to {destination} was passed off as another's")
        holders.append(sender)
        seed_shares.append(seed_share)
        key_shares.append(key_share)
        total += pair_mask(mask_key, seat, state["mask-publics"][sender], sender, words)
    if len(holders) < state["threshold"]:
        raise ProtocolError(f"masks of {len(holders)} devices hide too little")
    shares = {"holders": holders, "seed-shares": seed_shares, "key-shares": key_shares}
    _remember(context, {**state, **shares, "sent": True})
    return total


def _help_unmask(message: Message, context: Context) -> Message:
    """Shares of the seeds of those who delivered, or of the keys of those who did not: never of both."""
    state, order = _recall(message, context), _order(message)
    if "sent" not in state:
        raise ProtocolError("there is nothing to unmask yet")
    delivered, dropped = order["delivered"], order["dropped"]
    if sorted([*delivered, *dropped]) != sorted(state["holders"]):
        raise ProtocolError("every device of the round has either delivered or dropped out")
    if len(delivered) < state["threshold"]:
        raise ProtocolError(f"a sum of {len(delivered)} devices is below the threshold")
    # Forgetting comes first: a second, different list for the same round gets no answer.
    _remember(context, {"round": state["round"]})
    seed_share_of = dict(zip(state["holders"], state["seed-shares"], strict=True))
    key_share_of = dict(zip(state["holders"], state["key-shares"], strict=True))
    return _answer(
        message,
        {
            "seed-shares": [seed_share_of[seat] for seat in delivered],
            "key-shares": [key_share_of[seat] for seat in dropped],
        },
    )


def _order(message: Message) -> dict[str, Any]:
    return dict(message.content.config_records[MASKING])


def _answer(message: Message, content: dict[str, Any]) -> Message:
    return Message(RecordDict({MASKING: ConfigRecord(content)}), reply_to=message)


def _remember(context: Context, state: dict[str, Any]) -> None:
    context.state[MASKING] = ConfigRecord(state)


def _recall(message: Message, context: Context) -> dict[str, Any]:
    state = dict(context.state.config_records.get(MASKING, ConfigRecord()))
    if state.get("round") != round_number(message) or "mask-key" not in state:
        raise ProtocolError(f"no keys for round {round_number(message)}")
    return state
