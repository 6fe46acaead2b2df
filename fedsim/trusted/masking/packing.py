"""How lists of seats, sets of seats and rows of equal length travel as bytes; parsing checks every length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedsim.trusted.masking.errors import ContradictionError, TruncatedError

_SEAT = np.dtype("<u4")


def packed_seats(seats: Sequence[int]) -> bytes:
    """A list of seats, in its order."""
    return np.array(seats, dtype=_SEAT).tobytes()


def unpacked_seats(packed: bytes, among: int) -> list[int]:
    """A list of distinct seats below `among`."""
    if len(packed) % _SEAT.itemsize:
        raise TruncatedError(f"{len(packed)} bytes are no list of seats")
    seats: list[int] = np.frombuffer(packed, dtype=_SEAT).tolist()
    if len(set(seats)) != len(seats) or max(seats, default=0) >= among:
        raise ContradictionError("a list names a seat twice, or a seat that does not exist")
    return seats


def packed_set(seats: Iterable[int], among: int) -> bytes:
    """A set of seats below `among`, one bit each: equal sets have equal bytes."""
    bits = np.zeros(among, dtype=bool)
    bits[list(seats)] = True
    return np.packbits(bits).tobytes()


def unpacked_set(packed: bytes, among: int) -> frozenset[int]:
    """A set of seats below `among`."""
    if len(packed) != -(-among // 8):
        raise TruncatedError(f"{len(packed)} bytes are no set of {among} seats")
    seats = frozenset(np.flatnonzero(np.unpackbits(np.frombuffer(packed, dtype=np.uint8))).tolist())
    if seats and max(seats) >= among:
        raise ContradictionError("a set holds a seat that does not exist")
    return seats


def rows(packed: bytes, length: int, count: int) -> list[bytes]:
    """`count` rows of `length` bytes each."""
    if len(packed) != length * count:
        raise TruncatedError(f"expected {count} rows of {length} bytes, got {len(packed)} bytes")
    return [packed[start : start + length] for start in range(0, len(packed), length)]
