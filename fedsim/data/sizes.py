"""How many examples each client owns."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from fedsim.core.errors import UserError
from fedsim.core.settings import BY_NAME, Settings


class PowerLaw(Settings):
    """Few clients own much: sizes follow a Pareto distribution whose mean is `clients.dataset_size`."""

    name: Literal["power_law"] = "power_law"
    exponent: Annotated[float, Field(gt=1)] = 2.0
    """The share of clients with more than x examples falls as x to the power of minus this."""
    smallest: PositiveInt = 1
    """Nobody owns less."""

    def draw(self, clients: int, mean: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(clients,) sizes; smaller ones are rounded up to `smallest`."""
        drawn = 1 + rng.pareto(self.exponent, size=clients)
        sizes: NDArray[np.int64] = np.rint(mean * drawn / drawn.mean()).astype(np.int64)
        return np.maximum(self.smallest, sizes)


class ClientSizes(Settings):
    """The sizes of clients, as part of a partition; without settings all own `clients.dataset_size`."""

    size_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """With 0.5, clients own between half and one and a half times `clients.dataset_size` examples, each
    number equally likely."""
    sizes: (
        Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]
        | Annotated[PowerLaw, BY_NAME]
        | None
    ) = None
    """A list with the size of every client, or a power law."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.size_spread and self.sizes is not None:
            raise PydanticCustomError("sizes", "expected either size_spread or sizes")
        return self

    def draw_sizes(
        self, examples: int, clients: int, dataset_size: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """(clients,) how many of the `examples` each client gets; a `UserError` if there are too few."""
        if isinstance(self.sizes, PowerLaw):
            sizes = self.sizes.draw(clients, dataset_size, rng)
        elif self.sizes is not None:
            if len(self.sizes) != clients:
                raise UserError(f"data.partition.sizes: {len(self.sizes)} sizes for {clients} clients")
            sizes = np.array(self.sizes, dtype=np.int64)
        elif self.size_spread:
            fewest = max(1, int(np.ceil(dataset_size * (1 - self.size_spread))))
            most = int(dataset_size * (1 + self.size_spread))
            sizes = rng.integers(fewest, most, size=clients, endpoint=True)
        else:
            # No draw: the same seed deals the same examples whether or not the setting is spelled out.
            sizes = np.full(clients, dataset_size)
        if sizes.sum() > examples:
            equal = sizes.min() == sizes.max()
            each = f"{dataset_size}" if equal else f"{sizes.min()} to {sizes.max()}"
            key = "data.partition.sizes" if isinstance(self.sizes, tuple) else "clients.dataset_size"
            raise UserError(
                f"{key}: {clients} clients × {each} examples need {sizes.sum()} "
                f"training examples, but there are {examples}"
            )
        return sizes
