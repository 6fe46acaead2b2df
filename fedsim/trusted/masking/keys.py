"""Round keys: two key pairs per device and round, and the keys that two devices derive from them.

Key agreement is X25519 (RFC 7748) and key derivation HKDF with SHA-256 (RFC 5869), instead of the curve
P-384 of Flower's primitives, which is more than ten times as slow and no harder to break in practice. Every
derived key is bound to its purpose, the round, the roster and the two seats: the same agreement never gives
the same key for two purposes, and keys of two rounds or rosters have nothing in common.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsim.trusted.masking.errors import BadSignatureError
from fedsim.trusted.masking.masks import MASK_KEY_BYTES

PUBLIC_KEY_BYTES = 32
"""Length of a public key for agreement."""

AGREED_BYTES = 32
"""Length of the secret that two devices agree on."""

_LETTER_KEY_BYTES = 32


def mask_key_pair(seed: bytes) -> X25519PrivateKey:
    """The private key for agreeing on masks that grows from a secret; the secret is what is shared out."""
    return X25519PrivateKey.from_private_bytes(_derived(seed, b"fedsim mask key pair", 32))


def own_mask_key(seed: bytes) -> bytes:
    """The key of the mask that a device adds for nobody but itself."""
    return _derived(seed, b"fedsim own mask", MASK_KEY_BYTES)


def commitment(seed: bytes) -> bytes:
    """A public value that only this secret has, and that says nothing about it."""
    return _derived(seed, b"fedsim commitment", 32)


@dataclass(frozen=True)
class Binding:
    """The round and the roster (by its digest) that derived keys and signatures belong to."""

    server_round: int
    roster: bytes

    @cached_property
    def label(self) -> bytes:
        """The same, as bytes of a fixed length."""
        return self.server_round.to_bytes(8, "little") + self.roster

    def pair_mask_key(
        self, key: X25519PrivateKey, public: bytes, seats: tuple[int, int], terms: bytes = b""
    ) -> bytes:
        """The key of the mask that two seats share if they have the same terms.

        The order of the seats plays no part.
        """
        path = self._path(min(seats), max(seats)) + terms
        return _derived(agreed(key, public), b"fedsim pair mask" + path, MASK_KEY_BYTES)

    def letter_key(self, agreed: bytes, sender: int, receiver: int) -> bytes:
        """The key of the one letter that a sender writes to a receiver in a round, from their agreement."""
        return _derived(agreed, b"fedsim letter" + self._path(sender, receiver), _LETTER_KEY_BYTES)

    def _path(self, first: int, second: int) -> bytes:
        return self.label + struct.pack("<II", first, second)


def agreed(key: X25519PrivateKey, public: bytes) -> bytes:
    """The secret that the owners of two keys have in common, AGREED_BYTES long."""
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        # Points of small order, for which everybody knows the result.
        raise BadSignatureError("a public key is none that an honest device makes") from error


def _derived(secret: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, None, purpose).derive(secret)
