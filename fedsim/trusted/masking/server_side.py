"""The server's part of masked aggregation: pass on, add up, and take off what masks are left.

Four steps: keys and shares before the training, the training itself, and the unmasking after it. All that
arrives from one device is public keys, ciphertexts, a masked vector, and shares of others' secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.secure_aggregation.crypto.shamir import combine_shares

from fedsim.trusted.masking.device_side import KEYS, MASKED_VECTOR, MASKING, SHARES, UNMASK
from fedsim.trusted.masking.fixed_point import Words
from fedsim.trusted.masking.masks import grown, key_from_secret, pair_mask
from fedsim.trusted.masking.settings import Masked
from fedsim.trusted.replies import delivered
from fedsim.trusted.rounds import Invitation, RoundSum, Summation, SummingRound


@dataclass(frozen=True)
class MaskedSummation(Summation):
    """Opens masked rounds."""

    settings: Masked

    def open_round(self, invitation: Invitation) -> MaskedRound:
        """Begin a round: agree on keys and exchange shares."""
        return MaskedRound(self.settings, invitation)


class MaskedRound(SummingRound):
    """One round of the protocol; void as soon as fewer devices are left than the threshold asks for.

    Devices may drop out at any step. The threshold is a part of the invited cohort. The sum does not
    depend on who drops out during the unmasking, nor on any key: masks cancel to the last bit.
    """

    def __init__(self, settings: Masked, invitation: Invitation) -> None:
        settings.check_cohort(len(invitation.nodes))
        self._settings, self._invitation = settings, invitation
        self._needed = settings.needed(len(invitation.nodes))
        self._mask_publics: list[bytes] = []
        self._joined: dict[int, int] = {}
        self.messages = self._agreed() if invitation.nodes else []

    def _agreed(self) -> list[Message]:
        """Keys, then shares; the calls for training to those who gave both, or none if they are too few."""
        keys = self._ask(KEYS, {node: {} for node in self._invitation.nodes})
        if len(keys) < self._needed:
            return []
        self._mask_publics = [key["mask-public"] for key in keys.values()]
        roster = {
            "mask-publics": self._mask_publics,
            "talk-publics": [key["talk-public"] for key in keys.values()],
            "threshold": self._needed,
        }
        shares = self._ask(SHARES, {node: {**roster, "seat": seat} for seat, node in enumerate(keys)})
        if len(shares) < self._needed:
            return []
        self._joined = {seat: node for seat, node in enumerate(keys) if node in shares}
        calls = []
        for seat, node in self._joined.items():
            senders = [other for other in self._joined if other != seat]
            sealed = [shares[self._joined[sender]]["sealed"][seat] for sender in senders]
            calls.append(self._call_for_training(node, {"senders": senders, "sealed": sealed}))
        return calls

    def close(self, replies: Iterable[Message]) -> RoundSum:
        """The sum of the updates that arrived, or a void round."""
        dim = self._invitation.dim
        if not self._invitation.nodes:
            return RoundSum.of_nobody(dim)
        arrived = delivered(replies)
        there = {seat: arrived[node] for seat, node in self._joined.items() if node in arrived}
        if len(there) < self._needed:
            return RoundSum.void(dim)
        dropped = [seat for seat in self._joined if seat not in there]
        order = {"delivered": list(there), "dropped": dropped}
        answers = self._ask(UNMASK, {self._joined[seat]: order for seat in there})
        if len(answers) < self._needed:
            return RoundSum.void(dim)
        total = self._unmasked([_words(reply) for reply in there.values()], order, list(answers.values()))
        update, weight = self._settings.fixed_point.decode(total)
        return RoundSum(update, float(weight), tuple(self._joined[seat] for seat in there))

    def _unmasked(
        self, vectors: list[Words], order: Mapping[str, list[int]], answers: list[dict[str, Any]]
    ) -> Words:
        """The sum of the vectors, without the seeds' masks and the pair masks that lack their opposite."""
        # The dtype keeps NumPy from adding up 32-bit words in 64 bits, where masks would not cancel.
        total: Words = np.add.reduce(vectors, dtype=vectors[0].dtype)
        enough = answers[: self._needed]
        for position in range(len(order["delivered"])):
            seed = combine_shares([answer["seed-shares"][position] for answer in enough])
            total -= grown(seed, total)
        for position, gone in enumerate(order["dropped"]):
            key = key_from_secret(combine_shares([answer["key-shares"][position] for answer in enough]))
            for seat in order["delivered"]:
                # What the lost device would have added for each of the others.
                total += pair_mask(key, gone, self._mask_publics[seat], seat, total)
        return total

    def _ask(self, query: str, orders: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Put a query to nodes; the answers of those that gave one, in the order of asking."""
        config = ConfigRecord({"server-round": self._invitation.server_round})
        questions = [
            Message(
                RecordDict({"config": config, MASKING: ConfigRecord(dict(order))}), node, f"query.{query}"
            )
            for node, order in orders.items()
        ]
        answers = delivered(self._invitation.grid.send_and_receive(questions))
        return {
            node: dict(answers[node].content.config_records[MASKING]) for node in orders if node in answers
        }

    def _call_for_training(self, node: int, letters: Mapping[str, Any]) -> Message:
        """The server's instruction to one node, with the shares that the others sent it."""
        instruction = self._invitation.instruction
        content = RecordDict({**instruction.content, MASKING: ConfigRecord(dict(letters))})
        return Message(content, node, instruction.metadata.message_type)


def _words(reply: Message) -> Words:
    """The masked vector of a reply."""
    words: Words = reply.content.array_records["arrays"][MASKED_VECTOR].numpy()
    return words
