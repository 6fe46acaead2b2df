"""Long-term keys, the statements that devices sign with them, and how signatures are checked.

Signed round keys and the signed list of devices that delivered are what Bonawitz et al. (CCS 2017, section
6.2 and figure 4) add to their protocol against a server that lies. Signatures are ECDSA over the curve P-256
with SHA-256 (FIPS 186-5). A device verifies about a hundred signatures per round and makes two. OpenSSL
verifies these in two thirds of the time that Ed25519 takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedsim.trusted.masking.errors import BadSignatureError
from fedsim.trusted.masking.keys import Binding

VERIFYING_KEY_BYTES = 65
"""Length of a public key: an uncompressed point. A compressed one takes longer to read."""

_NUMBER_BYTES = 32

SIGNATURE_BYTES = 2 * _NUMBER_BYTES
"""Length of a signature: its two numbers, one after the other."""

_CURVE, _SCHEME = ec.SECP256R1(), ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True)
class SigningKey:
    """A device's long-term key."""

    private: ec.EllipticCurvePrivateKey

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the operating system's randomness."""
        return cls(ec.generate_private_key(_CURVE))

    @classmethod
    def parse(cls, packed: bytes) -> Self:
        """The key that was packed."""
        return cls(ec.derive_private_key(int.from_bytes(packed), _CURVE))

    @property
    def packed(self) -> bytes:
        """The private key as a device keeps it."""
        return self.private.private_numbers().private_value.to_bytes(_NUMBER_BYTES)

    @property
    def public(self) -> bytes:
        """The key that verifies signatures, VERIFYING_KEY_BYTES long."""
        return self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def sign(self, statement: bytes) -> bytes:
        """A signature, SIGNATURE_BYTES long."""
        r, s = decode_dss_signature(self.private.sign(statement, _SCHEME))
        return r.to_bytes(_NUMBER_BYTES) + s.to_bytes(_NUMBER_BYTES)


def keys_statement(server_round: int, client: int, mask_public: bytes, talk_public: bytes) -> bytes:
    """ "In this round, this client uses these keys." """
    numbers = server_round.to_bytes(8, "little") + client.to_bytes(4, "little")
    return b"fedsim round keys" + numbers + mask_public + talk_public


def delivered_statement(binding: Binding, joined: bytes, delivered: bytes) -> bytes:
    """ "I was told that of this roster these joined the round and these delivered a vector." """
    return b"fedsim delivered" + binding.label + joined + delivered


def verify(public: bytes, signature: bytes, statement: bytes, whose: str) -> None:
    """Raise unless the signature is that of the owner of a registered key."""
    r, s = (int.from_bytes(half) for half in (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:]))
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, public)
        key.verify(encode_dss_signature(r, s), statement, _SCHEME)
    except (
        InvalidSignature,
        ValueError,
    ) as error:  # the latter if the registered key is no point of the curve
        raise BadSignatureError(f"{whose} are not signed with the key that was registered") from error
