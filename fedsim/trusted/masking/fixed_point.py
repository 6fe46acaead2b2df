"""Updates as whole numbers modulo a power of two, in which masks cancel exactly.

Flower's own `quantize` draws its rounding from the global generator, and clips large entries without a word.
Here rounding is to the nearest step, and an entry that does not fit raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numba
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

    A sum of up to `most_summands` numbers cannot wrap around, whatever they are.
    """

    largest_entry: float
    bits: int
    modulus_bits: Literal[32, 64]

    @property
    def step(self) -> float:
        """The distance of neighbouring numbers.

        An encoded entry is off by at most half of it. The one exception is an entry of ±largest_entry
        itself: in single precision it can lie a rounding beyond the last step, and is moved to that step.
        """
        return self.largest_entry / self._most

    @property
    def most_summands(self) -> int:
        """How many numbers can be added up without any danger of wrapping around."""
        return int((2 ** (self.modulus_bits - 1) - 1) // self._most_weight)

    def encode(self, update: NDArray[np.floating[Any]], weight: int) -> Words:
        """(dim + 1,) words: the entries of an update (dim,), and last its weight, which is kept as it is."""
        words: Words = np.empty(len(update) + 1, dtype=np.uint32 if self.modulus_bits == 32 else np.uint64)
        if not _rounded(update, update.dtype.type(self.largest_entry), self.step, self._most, words):
            worst = np.abs(update).max()
            raise OutOfRangeError(
                f"an entry of {worst:g} lies outside ±largest_entry = ±{self.largest_entry:g}"
            )
        if not 0 <= weight <= self._most_weight:
            raise OutOfRangeError(f"a weight of {weight} lies outside 0..{self._most_weight} (see bits)")
        words[-1] = weight
        return words

    def decode(self, words: Words) -> tuple[NDArray[np.float32], int]:
        """The sum of updates (dim,) and of weights that a sum of encoded ones stands for."""
        entries = signed(words)
        return (entries[:-1] * self.step).astype(np.float32), int(entries[-1])

    @property
    def _most(self) -> int:
        return int(2 ** (self.bits - 1) - 1)

    @property
    def _most_weight(self) -> int:
        return max(self._most, _WEIGHT_AT_LEAST)


def signed(words: Words) -> NDArray[np.signedinteger[Any]]:
    """The whole numbers, negative ones too, that words stand for."""
    return words.view(f"i{words.itemsize}")


@numba.njit(nogil=True, cache=True)
def _rounded(
    update: NDArray[np.floating[Any]], limit: np.floating[Any], step: float, most: int, words: Words
) -> bool:
    """Write the entries as multiples of `step`, from -most to most; False if one lies beyond the limit."""
    for i in range(len(update)):
        # Asked this way round, a NaN is outside too.
        if not abs(update[i]) <= limit:
            return False
        words[i] = np.int64(min(max(np.rint(np.float64(update[i]) / step), -most), most))
    return True
