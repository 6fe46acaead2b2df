"""The roster: the round keys of everybody in a cohort, each signed with the owner's long-term key.

Seats are positions in the roster, 0..n-1, in the order of the clients' numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsim.trusted.masking.errors import ContradictionError, TruncatedError
from fedsim.trusted.masking.keys import PUBLIC_KEY_BYTES
from fedsim.trusted.masking.signatures import SIGNATURE_BYTES, keys_statement, verify

_CLIENT_BYTES = 4
_ENTRY_BYTES = _CLIENT_BYTES + 2 * PUBLIC_KEY_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True)
class Entry:
    """What one client announces for a round."""

    client: int
    mask_public: bytes
    talk_public: bytes
    signature: bytes

    @property
    def packed(self) -> bytes:
        """The entry as it travels."""
        return (
            self.client.to_bytes(_CLIENT_BYTES, "little")
            + self.mask_public
            + self.talk_public
            + self.signature
        )

    @classmethod
    def parse(cls, packed: bytes) -> Entry:
        """The entry that was packed."""
        if len(packed) != _ENTRY_BYTES:
            raise TruncatedError(f"round keys take {_ENTRY_BYTES} bytes, got {len(packed)}")
        rest = packed[_CLIENT_BYTES:]
        return cls(
            int.from_bytes(packed[:_CLIENT_BYTES], "little"),
            rest[:PUBLIC_KEY_BYTES],
            rest[PUBLIC_KEY_BYTES : 2 * PUBLIC_KEY_BYTES],
            rest[2 * PUBLIC_KEY_BYTES :],
        )

    def verify(self, server_round: int, registered: bytes) -> None:
        """Raise unless the owner of the registered key announced these keys for this round."""
        statement = keys_statement(server_round, self.client, self.mask_public, self.talk_public)
        verify(registered, self.signature, statement, f"the round keys of client {self.client}")


@dataclass(frozen=True)
class Roster:
    """All entries of a cohort, in the order of the clients' numbers, as one string of bytes.

    Devices get all of it, although they use few entries, so that they all mean the same cohort: the digest is
    part of every derived key and every signature.
    """

    packed: bytes

    def __post_init__(self) -> None:
        if not self.packed or len(self.packed) % _ENTRY_BYTES:
            raise TruncatedError(f"{len(self.packed)} bytes are no roster")
        if not (np.diff(self._clients) > 0).all():
            raise ContradictionError("a roster names each client once, in order")

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Roster:
        """The roster of these entries."""
        return cls(b"".join(entry.packed for entry in entries))

    def __len__(self) -> int:
        return len(self.packed) // _ENTRY_BYTES

    def __getitem__(self, seat: int) -> Entry:
        return Entry.parse(self.packed[seat * _ENTRY_BYTES : (seat + 1) * _ENTRY_BYTES])

    @cached_property
    def digest(self) -> bytes:
        """A value that no other roster has."""
        return hashlib.sha256(self.packed).digest()

    def seat_of(self, client: int) -> int:
        """Where a client sits."""
        (seats,) = np.nonzero(self._clients == client)
        if len(seats) != 1:
            raise ContradictionError(f"client {client} is not in the roster")
        return int(seats[0])

    @property
    def _clients(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        entries = np.frombuffer(self.packed, dtype=np.uint8).reshape(-1, _ENTRY_BYTES)
        return entries[:, :_CLIENT_BYTES].copy().view("<u4")[:, 0].astype(np.int64)
