"""Statements that devices sign with their long-term keys (Ed25519, RFC 8032), and how they are checked.

Signed round keys and the signed list of devices that delivered are what Bonawitz et al. (CCS 2017, section
6.2 and figure 4) add to their protocol against a server that lies.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedsim.trusted.masking.errors import BadSignatureError
from fedsim.trusted.masking.keys import Binding

SIGNATURE_BYTES = 64
"""Length of a signature."""


def keys_statement(server_round: int, client: int, mask_public: bytes, talk_public: bytes) -> bytes:
    """ "In this round, this client uses these keys." """
    numbers = server_round.to_bytes(8, "little") + client.to_bytes(4, "little")
    return b"fedsim round keys" + numbers + mask_public + talk_public


def delivered_statement(binding: Binding, joined: bytes, delivered: bytes) -> bytes:
    """ "I was told that of this roster these joined the round and these delivered a vector." """
    return b"fedsim delivered" + binding.label + joined + delivered


def verify(public: bytes, signature: bytes, statement: bytes, whose: str) -> None:
    """Raise unless the signature is that of the owner of a registered key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except InvalidSignature as error:
        raise BadSignatureError(f"{whose} are not signed with the key that was registered") from error
