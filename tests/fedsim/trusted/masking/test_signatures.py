"""Long-term keys and their signatures."""

import pytest

from fedsim.trusted.masking.errors import BadSignatureError
from fedsim.trusted.masking.signatures import SIGNATURE_BYTES, VERIFYING_KEY_BYTES, SigningKey, verify

STATEMENT = b"I was told that these delivered."


def test_a_key_that_was_packed_signs_for_the_same_owner():
    key = SigningKey.generate()
    signature = SigningKey.parse(key.packed).sign(STATEMENT)
    verify(key.public, signature, STATEMENT, "words")
    assert (len(key.public), len(signature)) == (VERIFYING_KEY_BYTES, SIGNATURE_BYTES)


def test_nothing_else_passes():
    key = SigningKey.generate()
    signature = key.sign(STATEMENT)
    no_point = key.public[:-1] + bytes([key.public[-1] ^ 1])
    for public, signed, statement in (
        (SigningKey.generate().public, signature, STATEMENT),
        (key.public, signature, STATEMENT + b"!"),
        (key.public, bytes([signature[0] ^ 1]) + signature[1:], STATEMENT),
        (key.public, bytes(SIGNATURE_BYTES), STATEMENT),
        (no_point, signature, STATEMENT),
        (bytes(VERIFYING_KEY_BYTES), signature, STATEMENT),
    ):
        with pytest.raises(BadSignatureError, match="words are not signed"):
            verify(public, signed, statement, "words")
