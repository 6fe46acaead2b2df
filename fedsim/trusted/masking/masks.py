"""Masks: long vectors of uniform words, grown from short keys.

A mask is the key stream of AES-128 in counter mode, which stands for the PRG of Bonawitz et al. (CCS 2017,
section 3.3). Flower's own generator folds a seed to 32 bits, and a server could try all of them. The key
stream keeps the 128 bits of the key, is uniform over all words, and the processor computes it faster than
NumPy draws random numbers. It is the ciphertext of zeros in Galois/counter mode, whose tag nobody needs:
OpenSSL has vector instructions for this mode that it does not use for plain counter mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedsim.trusted.masking.fixed_point import Words

MASK_KEY_BYTES = 16
"""Length of the key that a mask grows from: 128 bits, the strength of X25519."""

_NONCE = bytes(12)
_BLOCK_BYTES = 16
_STRETCH_WORDS = 32_768
"""Words that are masked at a time, so that they stay in the cache while one mask after the other is added."""


def add_masks(words: Words, plus: Sequence[bytes], minus: Sequence[bytes] = ()) -> None:
    """Add the masks of the keys `plus` to words (dim,), in their place, and take those of `minus` away.

    A key serves for one mask only, so any fixed nonce does.
    """
    streams = [
        (Cipher(algorithms.AES(key), modes.GCM(_NONCE)).encryptor(), combine)
        for keys, combine in ((plus, np.add), (minus, np.subtract))
        for key in keys
    ]
    stretch_bytes = _STRETCH_WORDS * words.itemsize
    zeros, grown = memoryview(bytes(stretch_bytes)), bytearray(stretch_bytes + _BLOCK_BYTES)
    for begin in range(0, len(words), _STRETCH_WORDS):
        part = words[begin : begin + _STRETCH_WORDS]
        mask: Words = np.frombuffer(grown, dtype=words.dtype, count=len(part))
        for stream, combine in streams:
            stream.update_into(zeros[: part.nbytes], grown)
            combine(part, mask, out=part)
