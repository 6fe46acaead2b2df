"""How the training examples are divided among the clients: one settings class per scheme.

Every scheme gives each client `clients.dataset_size` examples, or a size of its own (`ClientSizes`), and
gives no example to two clients. Some examples may stay unused. The natural partition is the exception: a
client has the examples of one person, however many there are.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fedsim.core.errors import UserError
from fedsim.core.settings import BY_NAME
from fedsim.data.dataset import Examples
from fedsim.data.flower_partition import FlowerPartition
from fedsim.data.scheme import Owned, Scheme
from fedsim.data.sizes import ClientSizes


class Iid(ClientSizes, Scheme):
    """Every client's examples are drawn uniformly from all training examples."""

    name: Literal["iid"] = "iid"

    def deal(self, examples: Examples, clients: int, dataset_size: int, rng: np.random.Generator) -> Owned:
        """Consecutive pieces of one permutation."""
        sizes = self.draw_sizes(len(examples), clients, dataset_size, rng)
        dealt = rng.permutation(len(examples))[: sizes.sum()]
        return np.split(dealt, np.cumsum(sizes)[:-1])


class Dirichlet(ClientSizes, Scheme):
    """Label skew: every client has its own mix of classes; the smaller alpha, the stronger.

    A client's class shares are Dirichlet with `alpha` per class, weighted by the frequency of the class, so
    that a large alpha tends to IID even if classes are unbalanced. When a class runs out, the client's other
    classes replace it. Clients are served in random order; if few examples are left over in the end, the
    skew of the last clients is weaker.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5

    def deal(self, examples: Examples, clients: int, dataset_size: int, rng: np.random.Generator) -> Owned:
        """Every client draws from piles, one per class."""
        labels = examples.targets
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise UserError(
                f"data.partition.name is {self.name!r}: it needs class labels, which these data do not have"
            )
        sizes = self.draw_sizes(len(examples), clients, dataset_size, rng)
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


class Property(Scheme):
    """Some clients' examples have a property, and nobody else's: the target of property inference.

    A part `holders` of the clients, drawn at random, has the `attribute` in a part `share` of its examples.
    The other clients have no example with it. Otherwise examples are drawn uniformly.
    """

    name: Literal["property"] = "property"
    attribute: str
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    holders: Annotated[float, Field(gt=0, lt=1)] = 0.5

    def deal(self, examples: Examples, clients: int, dataset_size: int, rng: np.random.Generator) -> Owned:
        """Every client draws from two piles: examples with the attribute, and without."""
        if self.attribute not in examples.attributes:
            known = ", ".join(examples.attributes) or "none: these data have no attributes"
            raise UserError(f"data.partition.attribute is {self.attribute!r}: expected one of {known}")
        holders = np.zeros(clients, dtype=np.bool_)
        holders[rng.permutation(clients)[: max(1, round(self.holders * clients))]] = True
        with_it = np.where(holders, max(1, round(self.share * dataset_size)), 0)
        has = examples.attributes[self.attribute]
        parts = []
        for word, needed, mask in (("with", with_it, has), ("without", dataset_size - with_it, ~has)):
            pile = rng.permutation(np.flatnonzero(mask))
            if needed.sum() > len(pile):
                raise UserError(
                    f"data.partition: {clients} clients, {holders.sum()} of them with {self.attribute!r}, "
                    f"need {needed.sum()} training examples {word} it, but there are {len(pile)}"
                )
            parts.append(np.split(pile[: needed.sum()], np.cumsum(needed)[:-1]))
        return [np.concatenate(pair) for pair in zip(*parts, strict=True)]


class Natural(Scheme):
    """One client per person of the data, with all of the person's examples.

    `clients.dataset_size` is not used. If the data have more people than the federation has clients, people
    are drawn at random.
    """

    name: Literal["natural"] = "natural"

    def deal(self, examples: Examples, clients: int, dataset_size: int, rng: np.random.Generator) -> Owned:
        """The examples of every person, people in the order of the data."""
        if examples.owners is None:
            raise UserError(
                f"data.partition.name is {self.name!r}: it needs data that say whose each example is"
            )
        people = np.unique(examples.owners)
        if clients > len(people):
            raise UserError(f"federation.clients is {clients}: the data have {len(people)} people")
        if clients < len(people):
            people = np.sort(rng.permutation(people)[:clients])
        order = np.argsort(examples.owners, kind="stable")
        starts = np.searchsorted(examples.owners[order], people)
        stops = np.searchsorted(examples.owners[order], people, side="right")
        return [order[start:stop] for start, stop in zip(starts, stops, strict=True)]


Partition = Annotated[
    Iid | Dirichlet | Property | Natural | FlowerPartition, Field(discriminator="name"), BY_NAME
]


def _draw_classes(
    share: NDArray[np.float64], left: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(classes,) how many of the examples that are `left` to take of each class, `size` in all."""
    wanted = np.zeros_like(left)
    while (missing := size - wanted.sum()) > 0:
        available = left - wanted
        weight = np.where(available > 0, share, 0)
        if weight.sum() == 0:
            # All of the client's own classes are gone (a small alpha rounds the others to zero).
            weight = available.astype(np.float64)
        wanted += np.minimum(rng.multinomial(missing, weight / weight.sum()), available)
    return wanted
