"""Shares of a secret: enough of them give it back, fewer say nothing, wrong ones give something else."""

import os
from itertools import combinations

import numpy as np
import pytest

from fedsim.trusted.masking.errors import WrongSharesError
from fedsim.trusted.masking.secret_sharing import SECRET_BYTES, SHARE_BYTES, combine, split

SECRETS = [bytes(SECRET_BYTES), b"\xff" * SECRET_BYTES, bytes(range(SECRET_BYTES))]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(("points", "needed"), [([1, 2], 2), ([3, 7, 8, 1000], 3), ([5, 1, 9, 2, 4], 1)])
def test_any_shares_that_are_enough_give_the_secret_back(secret, points, needed):
    shares = dict(zip(points, split(secret, points, needed), strict=True))
    assert {len(share) for share in shares.values()} == {SHARE_BYTES}
    for some in combinations(points, needed):
        assert combine({point: shares[point] for point in some}) == secret


def test_many_shares():
    secret, points = os.urandom(SECRET_BYTES), list(range(2, 202))
    shares = dict(zip(points, split(secret, points, 134), strict=True))
    assert combine({point: shares[point] for point in points[-134:]}) == secret


def test_a_share_too_few_says_nothing():
    """Every secret is as likely: the shares of a known one are uniform."""
    shares = [split(bytes(SECRET_BYTES), [1, 2, 3], 3)[0] for _ in range(2000)]
    bits = np.unpackbits(np.frombuffer(b"".join(shares), dtype=np.uint8).reshape(2000, -1), axis=1)
    # The last bit of a number below 2²⁵⁵ is zero; bits within a byte are written highest first.
    uniform = np.delete(bits, 248, axis=1).mean(axis=0)
    assert np.abs(uniform - 0.5).max() < 5 * 0.5 / np.sqrt(2000)


def test_wrong_shares_never_give_the_secret():
    """What they give instead is a wrong secret or none; owners' commitments tell (see the attacks)."""
    secret, rng = os.urandom(SECRET_BYTES), np.random.default_rng(0)
    for _ in range(500):
        shares = dict(enumerate(split(secret, [1, 2, 3], 3), start=1))
        wrong = bytearray(shares[2])
        wrong[rng.integers(SECRET_BYTES)] ^= 1 << rng.integers(8)
        try:
            assert combine({**shares, 2: bytes(wrong)}) != secret
        except WrongSharesError:
            continue
