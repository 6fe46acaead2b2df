"""The server's part of one masked round: pass on, add up, and take off the masks that are left.

Six steps: keys and shares before the training, the training itself, then confirmation and unmasking, and the
sum. A device sends public keys, sealed letters, a masked vector, a signature, and shares of others' secrets.
What the words of a vector mean is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedsim.flower import config_in
from fedsim.trusted.masking.device_side import CONFIRM, KEYS, MASKED_VECTOR, MASKING, SHARES, UNMASK
from fedsim.trusted.masking.errors import ContradictionError, TruncatedError, WrongSharesError
from fedsim.trusted.masking.fixed_point import Words
from fedsim.trusted.masking.keys import Binding, commitment, mask_key_pair, own_mask_key
from fedsim.trusted.masking.letters import LETTER_BYTES
from fedsim.trusted.masking.masks import add_masks
from fedsim.trusted.masking.packing import packed_seats, packed_set, rows, unpacked_seats
from fedsim.trusted.masking.roster import Entry, Roster
from fedsim.trusted.masking.secret_sharing import SHARE_BYTES, combine
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.masking.signatures import SIGNATURE_BYTES

Ask = Callable[[list[Message]], Mapping[int, Message]]
"""Sends questions to nodes; the answers by node, without those of nodes that failed."""


@dataclass(frozen=True)
class _Gift:
    """What a device gave for the others before the training: a letter per neighbour, and a commitment."""

    letters: dict[int, bytes]
    commitment: bytes

    @classmethod
    def of(cls, answer: Mapping[str, Any], seat: int, cohort: int) -> _Gift:
        neighbours = unpacked_seats(answer["neighbours"], cohort)
        if seat in neighbours:
            raise ContradictionError(f"seat {seat} has drawn itself")
        letters = rows(answer["letters"], LETTER_BYTES, len(neighbours))
        return cls(dict(zip(neighbours, letters, strict=True)), answer["commitment"])


class ProtocolRound:
    """One round of the protocol; void as soon as fewer devices are left than the threshold asks for.

    `clients` maps the nodes that have enrolled to their numbers, `number` is the round, which devices take
    only if it is larger than any before, and `nodes` are invited, in the order of their numbers. Devices may
    drop out at any step. The threshold is a part of the invited cohort. The sum does not depend on who drops
    out during the unmasking, nor on any key: masks cancel to the last bit.
    """

    def __init__(
        self, settings: Masked, clients: Mapping[int, int], number: int, nodes: Sequence[int], ask: Ask
    ) -> None:
        self._settings, self._clients, self._number = settings, clients, number
        self._send = ask
        self._needed = settings.needed(len(nodes))
        self._joined: dict[int, int] = {}
        self._gifts: dict[int, _Gift] = {}
        self.orders: dict[int, ConfigRecord] = self._agreed(nodes) if len(nodes) >= self._needed else {}
        """Node → the record `MASKING` of its call for training; empty if too few devices joined."""

    def _agreed(self, nodes: Sequence[int]) -> dict[int, ConfigRecord]:
        """Keys, then shares; orders for devices that gave both, or none if they are too few."""
        keys = self._ask(KEYS, {node: {} for node in nodes})
        if len(keys) < self._needed:
            return {}
        entries = {node: Entry.parse(answer["entry"]) for node, answer in keys.items()}
        for node, entry in entries.items():
            if entry.client != self._clients[node]:
                raise ContradictionError(f"client {self._clients[node]} sent keys of client {entry.client}")
        self._roster = Roster.of(list(entries.values()))
        answers = self._ask(SHARES, {node: {"roster": self._roster.packed} for node in entries})
        if len(answers) < self._needed:
            return {}
        self._joined = {seat: node for seat, node in enumerate(entries) if node in answers}
        self._gifts = {
            seat: _Gift.of(answers[node], seat, len(self._roster)) for seat, node in self._joined.items()
        }
        self._senders: dict[int, list[int]] = {seat: [] for seat in self._joined}
        """Seat → those whose letters it gets."""
        for sender, gift in self._gifts.items():
            for receiver in gift.letters:
                if receiver in self._senders:
                    self._senders[receiver].append(sender)
        joined = packed_set(self._joined, len(self._roster))
        return {node: self._order(seat, joined) for seat, node in self._joined.items()}

    def total(
        self, arrived: Mapping[int, Message], terms: bytes = b""
    ) -> tuple[Words, tuple[int, ...]] | None:
        """The sum of the masked words that arrived, without masks, and their nodes; None if it is void.

        `terms` are those of the devices (see `MaskingDevice.mask`).
        """
        there = {seat: arrived[node] for seat, node in self._joined.items() if node in arrived}
        if not there or len(there) < self._needed:
            return None
        shares = self._shares_for(list(there))
        if shares is None:
            return None
        words = self._unmasked([masked_words(reply) for reply in there.values()], set(there), shares, terms)
        return words, tuple(self._joined[seat] for seat in there)

    def _shares_for(self, there: list[int]) -> dict[int, dict[int, bytes]] | None:
        """Seat → holder's point → share, enough for every seat that joined; None if too few devices help."""
        order = {"delivered": packed_set(there, len(self._roster))}
        signed = self._ask(CONFIRM, {self._joined[seat]: order for seat in there})
        signatures = {seat: signed[self._joined[seat]] for seat in there if self._joined[seat] in signed}
        if len(signatures) < self._needed:
            return None
        confirmed = {
            "signers": packed_seats(list(signatures)),
            "signatures": b"".join(rows(a["signature"], SIGNATURE_BYTES, 1)[0] for a in signatures.values()),
        }
        answers = self._ask(UNMASK, {self._joined[seat]: confirmed for seat in signatures})
        if len(answers) < self._needed:
            return None
        shares: dict[int, dict[int, bytes]] = {seat: {} for seat in self._joined}
        for holder in signatures:
            if self._joined[holder] in answers:
                senders = self._senders[holder]
                held = rows(answers[self._joined[holder]]["shares"], SHARE_BYTES, len(senders))
                for sender, share in zip(senders, held, strict=True):
                    shares[sender][holder + 1] = share
        enough = self._settings.neighbourhood(len(self._roster)).needed
        if min(map(len, shares.values())) < enough:
            return None
        return {seat: dict(sorted(held.items())[:enough]) for seat, held in shares.items()}

    def _unmasked(
        self, vectors: list[Words], there: set[int], shares: Mapping[int, Mapping[int, bytes]], terms: bytes
    ) -> Words:
        """The sum of the vectors, without own masks and without pair masks that lack their opposite."""
        total: Words = vectors[0].copy()
        for vector in vectors[1:]:
            total += vector
        binding = Binding(self._number, self._roster.digest)
        keys: dict[bool, list[bytes]] = {True: [], False: []}
        for seat, held in shares.items():
            seed = combine(held)
            if seat in there:
                if commitment(seed) != self._gifts[seat].commitment:
                    raise WrongSharesError(f"the shares of seat {seat}'s own mask are not those it gave out")
                keys[False].append(own_mask_key(seed))
                continue
            mask_key = mask_key_pair(seed)
            if mask_key.public_key().public_bytes_raw() != self._roster[seat].mask_public:
                raise WrongSharesError(f"the shares of seat {seat}'s mask key are not those it gave out")
            for other in there.intersection({*self._gifts[seat].letters, *self._senders[seat]}):
                # The mask that the lost device would have added for this one.
                pair = binding.pair_mask_key(mask_key, self._roster[other].mask_public, (seat, other), terms)
                keys[seat < other].append(pair)
        add_masks(total, plus=keys[True], minus=keys[False])
        return total

    def _ask(self, query: str, orders: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Put a query to nodes; the answers of those that gave one, in the order of asking."""
        config = ConfigRecord({"server-round": self._number})
        questions = [
            Message(
                RecordDict({"config": config, MASKING: ConfigRecord({"round": self._number, **order})}),
                node,
                f"query.{query}",
            )
            for node, order in orders.items()
        ]
        answers = self._send(questions)
        return {node: dict(config_in(answers[node].content, MASKING)) for node in orders if node in answers}

    def _order(self, seat: int, joined: bytes) -> ConfigRecord:
        """What a device needs for its masks: who joined, and the letters that the others sent it."""
        senders = self._senders[seat]
        letters = b"".join(self._gifts[sender].letters[seat] for sender in senders)
        return ConfigRecord(
            {"round": self._number, "joined": joined, "senders": packed_seats(senders), "letters": letters}
        )


def masked_words(reply: Message) -> Words:
    """The masked vector of a reply."""
    arrays = reply.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or MASKED_VECTOR not in arrays:
        raise TruncatedError("a reply lacks its masked vector")
    words: Words = arrays[MASKED_VECTOR].numpy()
    return words
