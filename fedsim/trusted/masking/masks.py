"""Masks: long vectors of uniform words, grown from short secrets.

Flower's own generator folds a seed to 32 bits, and a server could try all of them. The key stream of a
block cipher keeps the strength of the secret, is uniform over all words, and is faster.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.supercore.primitives.asymmetric import bytes_to_public_key

from fedsim.trusted.masking.fixed_point import Words

SEED_BYTES = 31
"""A seed fills two of Shamir's blocks of 16 bytes with one byte of padding; one more byte, and sharing and
combining, the dearest part of a round, would cost half as much again."""

_CURVE = ec.SECP384R1()
"""The curve of Flower's `generate_key_pairs`."""
_SCALAR_BYTES = 48


def grown(seed: bytes, like: Words) -> Words:
    """The mask that belongs to a secret, as many uniform words as `like` has.

    A secret serves for one mask only, so the counter may start from zero.
    """
    key = hashlib.sha256(seed).digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(like.nbytes))
    return np.frombuffer(stream, dtype=like.dtype)


def pair_mask(
    own_key: ec.EllipticCurvePrivateKey, own_seat: int, their_key: bytes, their_seat: int, like: Words
) -> Words:
    """What the device at `own_seat` adds for the one at `their_seat`; the two of them add up to zero."""
    mask = grown(generate_shared_key(own_key, bytes_to_public_key(their_key)), like)
    return mask if own_seat < their_seat else np.negative(mask)


def secret_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The bare number behind a private key: a sixth of its usual text, and so of the work to share it."""
    return key.private_numbers().private_value.to_bytes(_SCALAR_BYTES, "big")


def key_from_secret(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key that belongs to the number."""
    return ec.derive_private_key(int.from_bytes(secret, "big"), _CURVE)
