"""Shamir's secret sharing (1979) over the field of integers modulo the prime 2²⁵⁵ − 19.

Any `needed` shares determine a secret, and fewer say nothing about it. Flower's `create_shares` works on
blocks of 16 bytes in a binary field, one multiplication of polynomials at a time: for a cohort of 80 it takes
most of a round. Here a secret is one number, and the points are small, so that a share costs `needed` short
multiplications. Shares carry no redundancy of their own: whoever combines them checks the result against
a commitment (see `server_side`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

from fedsim.trusted.masking.errors import WrongSharesError

SECRET_BYTES = 31
"""Length of a secret: 248 bits fit in the field, whatever they are."""

SHARE_BYTES = 32
"""Length of a share."""

_PRIME = 2**255 - 19


def split(secret: bytes, points: Sequence[int], needed: int) -> list[bytes]:
    """One share per point, for distinct points above 0; any `needed` of them give the secret back."""
    # 256 random bits modulo the prime are within 2⁻²⁴⁹ of uniform.
    noise = os.urandom(SHARE_BYTES * (needed - 1))
    coefficients = [
        int.from_bytes(noise[start : start + SHARE_BYTES], "little") % _PRIME
        for start in range(0, len(noise), SHARE_BYTES)
    ]
    constant = int.from_bytes(secret, "little")
    shares = []
    for point in points:
        value = 0
        for coefficient in coefficients:
            value = (value * point + coefficient) % _PRIME
        shares.append(((value * point + constant) % _PRIME).to_bytes(SHARE_BYTES, "little"))
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret behind shares (point → share).

    Wrong shares give a wrong secret, or a number that is too large for one, which raises. So compare the
    result with what the owner of the secret is committed to.
    """
    factors = _factors_at_zero(tuple(shares))
    values = (int.from_bytes(share, "little") for share in shares.values())
    secret = sum(value * factor for value, factor in zip(values, factors, strict=True)) % _PRIME
    if secret >> 8 * SECRET_BYTES:
        raise WrongSharesError("shares combine to no secret at all")
    return secret.to_bytes(SECRET_BYTES, "little")


@lru_cache(maxsize=4)
def _factors_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """What Lagrange's interpolation at 0 multiplies the value at each point with."""
    below = [point * prod(other - point for other in points if other != point) % _PRIME for point in points]
    # One inversion for all: it costs as much as a hundred multiplications.
    running = list(accumulate(below, lambda product, factor: product * factor % _PRIME, initial=1))
    inverse, factors = pow(running[-1], -1, _PRIME) * prod(points) % _PRIME, []
    for before, factor in zip(running[-2::-1], below[::-1], strict=True):
        factors.append(inverse * before % _PRIME)
        inverse = inverse * factor % _PRIME
    return tuple(factors[::-1])
