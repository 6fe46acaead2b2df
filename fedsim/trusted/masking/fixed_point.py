"""Updates as whole numbers modulo a power of two, in which masks cancel exactly.

Flower's own `quantize` draws its rounding from the global generator and clips what is too large without
a word. Here rounding is to the nearest step, and what does not fit raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.unsignedinteger[Any]]
"""A vector modulo 2³² or 2⁶⁴: NumPy's unsigned arithmetic wraps around by itself."""

_WEIGHT_AT_LEAST = 2**15 - 1
"""Weights up to this fit in any encoding, however coarse."""


class OutOfRangeError(ValueError):
    """A number that the encoding cannot hold."""


@dataclass(frozen=True)
class FixedPoint:
    """Numbers from -largest_entry to largest_entry on 2^bits equal steps, modulo 2^modulus_bits.

    A sum of as many numbers as `most_summands` says cannot wrap around, whatever they are.
    """

    largest_entry: float
    bits: int
    modulus_bits: Literal[32, 64]

    @property
    def step(self) -> float:
        """The distance of neighbouring numbers; an encoded entry is off by at most half of it."""
        return self.largest_entry / self._most

    @property
    def most_summands(self) -> int:
        """How many numbers can be added up without any danger of wrapping around."""
        return int((2 ** (self.modulus_bits - 1) - 1) // self._most_weight)

    def encode(self, update: NDArray[np.float32], weight: int) -> Words:
        """(dim + 1,) words: the entries of an update (dim,), and last its weight, which is kept as it is."""
        # Asked this way round, a NaN is outside too.
        if not (np.abs(update) <= self.largest_entry).all():
            worst = np.abs(update).max()
            raise OutOfRangeError(
                f"an entry of {worst:g} lies outside ±largest_entry = ±{self.largest_entry:g}"
            )
        if not 0 <= weight <= self._most_weight:
            raise OutOfRangeError(f"a weight of {weight} lies outside 0..{self._most_weight} (see bits)")
        steps = np.rint(update.astype(np.float64) / self.step)
        signed = np.append(steps, weight).astype(np.int64)
        return signed.astype(np.uint32 if self.modulus_bits == 32 else np.uint64)

    def decode(self, words: Words) -> tuple[NDArray[np.float32], int]:
        """The sum of updates (dim,) and of weights that a sum of encoded ones stands for."""
        signed = words.view(np.int32 if self.modulus_bits == 32 else np.int64).astype(np.int64)
        return (signed[:-1] * self.step).astype(np.float32), int(signed[-1])

    @property
    def _most(self) -> int:
        return int(2 ** (self.bits - 1) - 1)

    @property
    def _most_weight(self) -> int:
        return max(self._most, _WEIGHT_AT_LEAST)
