"""How the training images are dealt out: one settings class per way, each with `deal`.

Every way gives each client `clients.dataset_size` images, or about as many where `size_spread` is set, and
no image to two clients. Images that nobody gets stay unused.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fedsim.core.errors import UserError
from fedsim.core.settings import BY_NAME, Settings
from fedsim.data.images.image_data import Attributes

Owned = list[NDArray[np.int64]]
"""Per client, the positions of its training images; clients may own different numbers of them."""

NO_ATTRIBUTES: Attributes = {}

SizeSpread = Annotated[float, Field(ge=0, lt=1)]
"""With 0.5, clients own between half and one and a half times `clients.dataset_size` images, each number
equally likely; with 0 exactly `clients.dataset_size`."""


class Iid(Settings):
    """Every client's images are drawn uniformly from all training images."""

    name: Literal["iid"] = "iid"
    size_spread: SizeSpread = 0.0

    def deal(
        self,
        labels: NDArray[np.int64],
        clients: int,
        dataset_size: int,
        rng: np.random.Generator,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Owned:
        """The positions in `labels` that each client owns."""
        sizes = _sizes(len(labels), clients, dataset_size, self.size_spread, rng)
        dealt = rng.permutation(len(labels))[: sizes.sum()]
        return np.split(dealt, np.cumsum(sizes)[:-1])


class Dirichlet(Settings):
    """Label skew: every client has a taste of its own in classes; the smaller alpha, the stronger.

    A client's class shares are Dirichlet with `alpha` per class, weighted by how frequent the class is, so
    that a large alpha tends to IID even where classes are unbalanced. Classes that run out are made up for
    by the client's other classes; the fewer images are left over in the end, the weaker the skew of the
    clients that were served last, who are random ones.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5
    size_spread: SizeSpread = 0.0

    def deal(
        self,
        labels: NDArray[np.int64],
        clients: int,
        dataset_size: int,
        rng: np.random.Generator,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Owned:
        """The positions in `labels` that each client owns."""
        sizes = _sizes(len(labels), clients, dataset_size, self.size_spread, rng)
        classes, frequency = np.unique(labels, return_counts=True)
        piles = [rng.permutation(np.flatnonzero(labels == label)) for label in classes]
        concentration = self.alpha * len(classes) * frequency / len(labels)
        taken = np.zeros_like(frequency)
        owned: dict[int, NDArray[np.int64]] = {}
        for client in rng.permutation(clients).tolist():
            wanted = _draw_classes(rng.dirichlet(concentration), frequency - taken, int(sizes[client]), rng)
            parts = [
                pile[first : first + number] for pile, first, number in zip(piles, taken, wanted, strict=True)
            ]
            owned[client] = np.concatenate(parts)
            taken += wanted
        return [owned[client] for client in range(clients)]


class Property(Settings):
    """Some clients' images have a property, and nobody else's: what property inference looks for.

    A part `holders` of the clients, random ones, has the `attribute` in a part `share` of its images; the
    others have no image with it. Otherwise images are drawn uniformly.
    """

    name: Literal["property"] = "property"
    attribute: str
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    holders: Annotated[float, Field(gt=0, lt=1)] = 0.5

    def deal(
        self,
        labels: NDArray[np.int64],
        clients: int,
        dataset_size: int,
        rng: np.random.Generator,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Owned:
        """The positions in `labels` that each client owns."""
        if self.attribute not in attributes:
            known = ", ".join(attributes) or "none: these images have no attributes"
            raise UserError(f"data.partition.attribute is {self.attribute!r}: expected one of {known}")
        holders = np.zeros(clients, dtype=np.bool_)
        holders[rng.permutation(clients)[: max(1, round(self.holders * clients))]] = True
        with_it = np.where(holders, max(1, round(self.share * dataset_size)), 0)
        having, lacking = (
            rng.permutation(np.flatnonzero(attributes[self.attribute] == has)) for has in (True, False)
        )
        for needed, pile, word in ((with_it, having, "with"), (dataset_size - with_it, lacking, "without")):
            if needed.sum() > len(pile):
                raise UserError(
                    f"data.partition: {clients} clients, {holders.sum()} of them with {self.attribute!r}, "
                    f"need {needed.sum()} training images {word} it, but there are {len(pile)}"
                )
        parts = (
            np.split(pile[: needed.sum()], np.cumsum(needed)[:-1])
            for needed, pile in ((with_it, having), (dataset_size - with_it, lacking))
        )
        return [np.concatenate(pair) for pair in zip(*parts, strict=True)]


Partition = Annotated[Iid | Dirichlet | Property, Field(discriminator="name"), BY_NAME]


def _sizes(
    images: int, clients: int, dataset_size: int, spread: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(clients,) how many images each client gets; an error where there are too few."""
    if spread:
        fewest = max(1, int(np.ceil(dataset_size * (1 - spread))))
        sizes = rng.integers(fewest, int(dataset_size * (1 + spread)), size=clients, endpoint=True)
    else:
        # No draw: the same seed deals the same images whether or not the setting is spelled out.
        sizes = np.full(clients, dataset_size)
    if sizes.sum() > images:
        each = f"{sizes.min()} to {sizes.max()}" if spread else f"{dataset_size}"
        raise UserError(
            f"clients.dataset_size: {clients} clients × {each} images need {sizes.sum()} "
            f"training images, but there are {images}"
        )
    return sizes


def _draw_classes(
    share: NDArray[np.float64], left: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(classes,) how many of the images that are `left` to take of each class, `size` in all."""
    wanted = np.zeros_like(left)
    while (missing := size - wanted.sum()) > 0:
        available = left - wanted
        weight = np.where(available > 0, share, 0)
        if weight.sum() == 0:
            # All of the client's own classes are gone (a small alpha rounds the others to zero).
            weight = available.astype(np.float64)
        wanted += np.minimum(rng.multinomial(missing, weight / weight.sum()), available)
    return wanted
