"""Examples in memory, as every data set of the library delivers them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.task import Task

Attributes = Mapping[str, NDArray[np.bool_]]
"""Attribute → (n,) which of n examples have it, such as `Eyeglasses`; empty if none are known."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs with their targets, and what else is known about them.

    `inputs` (n, …) may have any shape and dtype, and so may `targets` (n, …); a task says what they mean.
    Nothing trains on `attributes`: an attack on the trained model may try to find them out. `owners` (n,)
    int64 numbers the people that the examples come from, if the data say so.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    attributes: Attributes = field(default_factory=dict)
    owners: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Examples:
        """The examples at these positions, or where a mask (n,) is True."""
        attributes = {name: has[rows] for name, has in self.attributes.items()}
        owners = None if self.owners is None else self.owners[rows]
        return Examples(self.inputs[rows], self.targets[rows], attributes, owners)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples of one task, for training and for testing.

    Both parts hold at least one example; their inputs have the same shape, and they know the same attributes.
    The task has checked both.
    """

    task: Task
    train: Examples
    test: Examples

    def __post_init__(self) -> None:
        noun = self.task.noun
        for part, examples in (("train", self.train), ("test", self.test)):
            if not len(examples):
                raise ValueError(f"{part} {noun}: there are none")
            if len(examples.targets) != len(examples):
                raise ValueError(f"{part} labels: {len(examples.targets)} for {len(examples)} {noun}")
            self.task.check(part, examples.inputs, examples.targets)
            for name, has in examples.attributes.items():
                if has.shape != (len(examples),) or has.dtype != np.bool_:
                    raise ValueError(f"{part} attribute {name}: expected one bool for each of the {noun}")
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            raise ValueError(
                f"test {noun}: {self.test.inputs.shape}, training {noun} {self.train.inputs.shape}"
            )
        if set(self.train.attributes) != set(self.test.attributes):
            raise ValueError(f"test attributes: not those of the training {noun}")

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen characters that stand for everything here: any other array or name gives others."""
        digest = hashlib.sha256(self.task.signature.encode())
        # The names are part of the fingerprint, which saved runs hold.
        arrays: list[tuple[str, NDArray[Any]]] = [
            (f"training {self.task.noun}", self.train.inputs),
            ("training labels", self.train.targets),
            (f"test {self.task.noun}", self.test.inputs),
            ("test labels", self.test.targets),
            *sorted(self.train.attributes.items()),
            *sorted(self.test.attributes.items()),
        ]
        if self.train.owners is not None:
            arrays.append(("owners", self.train.owners))
        for name, array in arrays:
            digest.update(f"{name} {array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]
