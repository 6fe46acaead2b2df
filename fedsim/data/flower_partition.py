"""Flower's own partitioners, from the package flwr-datasets."""

from __future__ import annotations

import inspect
import re
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.data.dataset import Examples
from fedsim.data.scheme import Owned, Scheme

_LABEL, _CLIENT, _POSITION = "label", "client", "position"
"""The columns of the table that a partitioner sees."""

Value = bool | int | float | str | list[int] | list[float]


class FlowerPartition(Scheme):
    """Any of Flower's partitioners of rows, by the name of its class; needs the package flwr-datasets.

    It sees a table with a `label` for each example, and a `client` if the data have ids: `partition_by` names
    one of them. The number of partitions is that of the clients, and the seed is the scenario's.
    `clients.dataset_size` is not used.
    """

    name: Literal["flower"] = "flower"
    partitioner: str = "IidPartitioner"
    settings: dict[str, Value] = Field(default_factory=dict)
    """Arguments of the class, such as `{ partition_by = "label", alpha = 0.5 }`."""

    def __hash__(self) -> int:
        """By what is written in the file: a table of arguments has no hash of its own."""
        return hash((self.partitioner, repr(self.settings)))

    def deal(self, examples: Examples, clients: int, dataset_size: int, rng: np.random.Generator) -> Owned:
        """What the partitioner loads for each client."""
        partitioner = self._partitioner(clients, rng)
        try:
            partitioner.dataset = self._table(examples)
            there = partitioner.num_partitions
            if there != clients:
                raise UserError(
                    f"federation.clients is {clients}: {self.partitioner} makes {there} partitions"
                )
            parts = [partitioner.load_partition(client) for client in range(clients)]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise UserError(f"data.partition: {self.partitioner}: {_reason(error)}") from error
        owned = [np.array(part[_POSITION], dtype=np.int64) for part in parts]
        empty = next((client for client, mine in enumerate(owned) if not len(mine)), None)
        if empty is not None:
            raise UserError(f"data.partition: {self.partitioner} leaves client {empty} without examples")
        return owned

    def _partitioner(self, clients: int, rng: np.random.Generator) -> Any:
        try:
            from flwr_datasets import partitioner as flowers  # type: ignore[import-untyped]
        except ImportError as error:
            raise UserError(
                "data.partition.name is 'flower': it needs a package: pip install flwr-datasets"
            ) from error
        known = [each for each in flowers.__all__ if not re.match(r"Vertical|Partitioner|IdToSizeFnc", each)]
        if self.partitioner not in known:
            raise UserError(
                f"data.partition.partitioner is {self.partitioner!r}: expected one of {', '.join(known)}"
            )
        found = getattr(flowers, self.partitioner)
        wanted = inspect.signature(found).parameters
        ours = {"num_partitions": clients, "seed": int(rng.integers(2**31))}
        given = {name: value for name, value in ours.items() if name in wanted}
        try:
            return found(**{**given, **self.settings})
        except (TypeError, ValueError) as error:
            raise UserError(f"data.partition: {self.partitioner}: {_reason(error)}") from error

    @staticmethod
    def _table(examples: Examples) -> Any:
        from datasets import Dataset  # type: ignore[import-untyped]

        columns: dict[str, Any] = {_POSITION: np.arange(len(examples))}
        if examples.targets.ndim == 1:
            columns[_LABEL] = examples.targets
        if examples.owners is not None:
            columns[_CLIENT] = examples.owners
        return Dataset.from_dict(columns)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
