"""Sealed letters: the shares that one device sends to another through the server.

A letter is sealed with ChaCha20-Poly1305 (RFC 8439) under a key that serves for this letter only, because it
is derived for the sender, the receiver, the round and the roster. So a letter that was changed, swapped with
another or kept from an earlier round does not open.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsim.trusted.masking.errors import BrokenSealError
from fedsim.trusted.masking.secret_sharing import SHARE_BYTES

LETTER_BYTES = 2 * SHARE_BYTES + 16
"""Length of a letter: two shares and the tag that seals them."""

_NONCE = bytes(12)
"""Any fixed value does for a key that encrypts once."""


@dataclass(frozen=True)
class Shares:
    """A device's shares of another's two secrets: the seed of its own mask, and the seed of its mask key."""

    own_mask: bytes
    mask_key: bytes

    def sealed(self, key: bytes) -> bytes:
        """The letter, LETTER_BYTES long."""
        return ChaCha20Poly1305(key).encrypt(_NONCE, self.packed, None)

    @classmethod
    def opened(cls, key: bytes, letter: bytes, sender: int) -> Shares:
        """The shares in a letter."""
        try:
            content = ChaCha20Poly1305(key).decrypt(_NONCE, letter, None)
        except InvalidTag as error:
            raise BrokenSealError(f"the letter from seat {sender} does not open") from error
        return cls.parse(content)

    @property
    def packed(self) -> bytes:
        """Both shares, one after the other."""
        return self.own_mask + self.mask_key

    @classmethod
    def parse(cls, packed: bytes) -> Shares:
        """The shares that were packed."""
        return cls(packed[:SHARE_BYTES], packed[SHARE_BYTES:])
