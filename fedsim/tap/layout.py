"""The layout of a recorded row: which arrays of a model it holds, and in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedsim.core.buffers import is_trained

Arrays = dict[tuple[str, str], NDArray[Any]]
"""Arrays by record and name."""


def arrays_in(records: Mapping[str, object]) -> Arrays:
    """All arrays of all array records, as copies that later changes of the records do not reach."""
    return {
        (key, name): array.numpy()
        for key, record in records.items()
        if isinstance(record, ArrayRecord)
        for name, array in record.items()
    }


def aligned(reply: RecordDict, sent: Arrays) -> Arrays:
    """The arrays of a reply, under the keys under which they were sent.

    Some clients return the model under another key than they got it. That is clear if there is one record on
    either side.
    """
    arrays = arrays_in(reply)
    keys, sent_keys = ({key for key, _ in side} for side in (arrays, sent))
    if len(keys) == len(sent_keys) == 1:
        (key,) = sent_keys
        return {(key, name): array for (_, name), array in arrays.items()}
    return arrays


@dataclass(frozen=True)
class Place:
    """One array of a row: the record that it travels in, its name, its shape and the type of its entries."""

    record: str
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The arrays of a row, in order. `aside` are the arrays that clients also return and no row holds."""

    places: tuple[Place, ...]
    aside: tuple[Place, ...]

    @classmethod
    def of(cls, reply: Arrays, sent: Arrays | None, skip: Sequence[str]) -> Layout:
        """The layout of the first reply: its float arrays, in its own order.

        Arrays whose name matches a pattern in `skip` are left aside. So are arrays that were not sent in the
        same shape, because no difference can be taken; `sent` None means that replies are updates already.
        """
        places: list[Place] = []
        aside: list[Place] = []
        for (record, name), array in reply.items():
            place = Place(record, name, array.shape, str(array.dtype))
            known = sent is None or getattr(sent.get((record, name)), "shape", None) == array.shape
            (places if known and is_trained(name, array, skip) else aside).append(place)
        return cls(tuple(places), tuple(aside))

    @property
    def dim(self) -> int:
        """Entries of a row."""
        return sum(place.size for place in self.places)

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of the arrays, as `layers.json` has them."""
        return [list(place.shape) for place in self.places]

    def misfit(self, arrays: Arrays) -> str:
        """Why these arrays do not make a row; empty if they do."""
        for place in self.places:
            array = arrays.get((place.record, place.name))
            if array is None:
                return f"the array {place.name!r} is missing"
            if array.shape != place.shape:
                return f"the array {place.name!r} has shape {array.shape}, expected {place.shape}"
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                return f"the array {place.name!r} holds entries that are not finite numbers"
        return ""

    def row(self, arrays: Arrays) -> NDArray[np.float64]:
        """(dim,) the entries of arrays that fit."""
        row = np.empty(self.dim)
        start = 0
        for place in self.places:
            row[start : start + place.size] = arrays[place.record, place.name].reshape(-1)
            start += place.size
        return row

    def moved(self, arrays: Arrays, row: NDArray[np.floating[Any]]) -> Arrays:
        """The arrays with the entries of a row (dim,) added, of the same types; others stay as they are."""
        moved, start = dict(arrays), 0
        for place in self.places:
            before = arrays[place.record, place.name]
            step = row[start : start + place.size].reshape(place.shape).astype(np.float64)
            moved[place.record, place.name] = np.asarray(before + step).astype(before.dtype)
            start += place.size
        return moved

    def to_json(self) -> dict[str, Any]:
        """For the file that writes the layout down."""
        return {name: [asdict(place) for place in getattr(self, name)] for name in ("places", "aside")}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Layout:
        """What `to_json` returned."""
        places, aside = (
            tuple(
                Place(str(p["record"]), str(p["name"]), tuple(map(int, p["shape"])), str(p["dtype"]))
                for p in content[name]
            )
            for name in ("places", "aside")
        )
        return cls(places, aside)
