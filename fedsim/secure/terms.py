"""What a secure sum adds up, within which bounds, and how that becomes words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, ValidationError

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings
from fedsim.trusted.masking.errors import GarbledError
from fedsim.trusted.masking.fixed_point import FixedPoint, OutOfRangeError, Words, signed

_FRACTION_BITS = 32
_LIMB_BITS, _LIMBS = 20, 4
"""Weights and metrics are multiples of 2^-32, cut into four limbs. A sum of 1,000 limbs fits in a word."""

LARGEST_NUMBER = 2.0 ** (_LIMB_BITS * _LIMBS - _FRACTION_BITS - 2)
"""Largest weight, and largest metric times weight, that can be sent: 7·10¹³."""

_SMALL_WORDS_UP_TO = 22
"""Bits of an entry up to which a sum of 1,000 entries fits in 32 bits."""

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Total:
    """What the replies of a cohort add up to: n·update (dim,), n, and n·metric by name."""

    entries: NDArray[np.float64]
    weight: float
    metrics: dict[str, float]
    shortened: int
    """How many updates were longer than `clip`."""


class Terms(Settings):
    """What is added up: n·update, n and n·metric for the listed metrics, where n is the weight of a client.

    An update longer than `clip` (L2 norm of all float arrays together) is shortened to it, so every entry of
    n·update lies within ±clip·largest_weight, and is rounded to one of 2^bits steps between these bounds.
    """

    weighted_by: str | None
    """The metric that holds n; None: every client counts once."""
    metrics: Annotated[tuple[str, ...], Field(strict=False)]
    arrays: bool = True
    """Whether updates are added up; not in a round of evaluation."""
    clip: PositiveFloat
    largest_weight: PositiveFloat
    bits: Annotated[int, Field(ge=8, le=53)]

    @property
    def fixed_point(self) -> FixedPoint:
        """How entries become words; any cohort that the protocol allows fits."""
        return FixedPoint(
            self.clip * self.largest_weight, self.bits, 32 if self.bits <= _SMALL_WORDS_UP_TO else 64
        )

    def words(self, dim: int) -> int:
        """The number of words of a reply with `dim` entries."""
        return dim + 1 + _LIMBS * (2 + len(self.metrics))

    def encode(self, update: NDArray[np.float64], weight: float, metrics: Sequence[float]) -> Words:
        """The words of an update (dim,), its weight and metrics; `OutOfRangeError` if one does not fit."""
        if not 0 < weight <= self.largest_weight:
            raise OutOfRangeError(
                f"its weight {self.weighted_by!r} is {weight:g}, expected a number above 0 and up to "
                f"largest_weight = {self.largest_weight:g}"
            )
        length = float(np.linalg.norm(update))
        if not math.isfinite(length):
            raise OutOfRangeError("its update has entries that are not finite")
        shortened = length > self.clip
        if shortened:
            update = update * (self.clip / length)
        # Shortened to the bound, an entry can still lie a rounding beyond it.
        bound = self.fixed_point.largest_entry
        entries = np.clip(weight * update, -bound, bound)
        numbers = [weight, float(shortened), *(weight * metric for metric in metrics)]
        for name, number in zip((self.weighted_by, "", *self.metrics), numbers, strict=True):
            if not abs(number) < LARGEST_NUMBER:
                raise OutOfRangeError(
                    f"its metric {name!r} times its weight is {number:g}, expected at most "
                    f"{LARGEST_NUMBER:.0e} either way"
                )
        # The last word of the encoding adds up to the size of the cohort if all masks cancel.
        words = self.fixed_point.encode(entries, 1)
        limbs = np.array([limb for number in numbers for limb in _limbs(number)])
        return np.concatenate([words, limbs.astype(words.dtype)])

    def decode(self, words: Words, members: int) -> Total:
        """What the sum of the words of so many members stands for."""
        dim = len(words) - self.words(0)
        numbers = signed(words)
        if numbers[dim] != members:
            raise GarbledError("the masks do not cancel: clients were sent different calls, or one is faulty")
        limbs = numbers[dim + 1 :].reshape(-1, _LIMBS).tolist()
        weight, shortened, *sums = (_number(each) for each in limbs)
        return Total(
            numbers[:dim].astype(np.float64) * self.fixed_point.step,
            weight,
            dict(zip(self.metrics, sums, strict=True)),
            round(shortened),
        )


def checked(settings: type[S], who: str, **values: Any) -> S:
    """The settings; a `UserError` in one line that names the first wrong one."""
    try:
        return settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name, message = str(first["loc"][0]), first["msg"].removeprefix("Input should be ")
        message = message.removeprefix("expected ")
        raise UserError(f"{who}({name}={values[name]!r}): expected {message}") from None


def _limbs(number: float) -> list[int]:
    """The limbs, lowest first; all but the highest lie in 0..2^_LIMB_BITS - 1."""
    whole = round(number * 2**_FRACTION_BITS)
    low = [(whole >> _LIMB_BITS * place) & (2**_LIMB_BITS - 1) for place in range(_LIMBS - 1)]
    return [*low, whole >> _LIMB_BITS * (_LIMBS - 1)]


def _number(limbs: Sequence[int]) -> float:
    """The number that limbs, or sums of limbs, stand for."""
    return float(sum(limb << _LIMB_BITS * place for place, limb in enumerate(limbs)) / 2**_FRACTION_BITS)
