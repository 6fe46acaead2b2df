"""Tensors of any shape and dtype as a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.core.files import parsing
from fedsim.core.users_code import attribute_named, is_reference, one_line
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.partition import Natural, Partition
from fedsim.data.source import Source
from fedsim.data.split import TestFraction, held_out
from fedsim.data.tensors.files import (
    CLIENTS,
    INPUTS,
    NAMES,
    TARGETS,
    TEST_INPUTS,
    TEST_TARGETS,
    Arrays,
    read_tensors,
)

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching
    from fedsim.tasks.task import Task


class Tensors(Source):
    """Your own tensors, with client ids if you have them: .npz, .safetensors, .parquet or module:function.

    The arrays are `inputs` (n, …) and `targets`; `clients` (n,) says whose each example is, by number or
    name. `test_inputs` and `test_targets` are the test part; without them `test_fraction` is set aside.
    Integer targets are classes, float targets are numbers to predict. Colour pictures (n, height, width, 3)
    uint8 are scaled as in the library's own data sets; all other numbers reach the network as they are.
    """

    task_type: ClassVar = None

    name: Literal["tensors"] = "tensors"
    path: Annotated[Path, Field(strict=False)]
    """A file, or `module:function` that returns the arrays by name; its code is run."""
    test_fraction: TestFraction = 0.2
    partition: Partition = Natural()

    def load(self, seed: int) -> Dataset:
        """All examples; which of them are for testing depends on the seed, if the file does not say."""
        reference = str(self.path)
        arrays = _called(reference) if is_reference(reference) else read_tensors(self.path)
        with parsing(f"data.path: {self.path}"):
            return self._dataset(arrays, seed)

    def further_modules(self) -> set[str]:
        """The module of the function."""
        reference = str(self.path)
        return {reference.partition(":")[0]} if is_reference(reference) else set()

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Always a `UserError`: the tensors are the user's own."""
        raise UserError(
            "tensors is for arrays of your own: set data.path to a file with inputs and targets "
            "(.npz, .safetensors or .parquet)"
        )

    def _dataset(self, arrays: Arrays, seed: int) -> Dataset:
        for name in (INPUTS, TARGETS):
            if name not in arrays:
                raise ValueError(f"{name} missing, expected {', '.join(NAMES)}")
        clients = arrays.get(CLIENTS)
        if clients is None and isinstance(self.partition, Natural):
            raise UserError(
                f"data.path: {self.path} has no {CLIENTS}, which the natural partition needs: add them, or "
                "set data.partition to iid or dirichlet"
            )
        examples = len(arrays[INPUTS])
        for name in (TARGETS, CLIENTS):
            if name in arrays and arrays[name].shape[:1] != (examples,):
                raise ValueError(f"{name}: {arrays[name].shape}, but there are {examples} inputs")
        owners = None
        if clients is not None:
            if clients.ndim != 1:
                raise ValueError(f"{CLIENTS}: expected one id per example, got {clients.shape}")
            owners = np.unique(clients, return_inverse=True)[1].astype(np.int64)
        everything = Examples(arrays[INPUTS], _targets(arrays[TARGETS]), owners=owners)
        if TEST_INPUTS in arrays and TEST_TARGETS in arrays:
            train = everything
            # Nobody's: tests are the server's.
            test = Examples(arrays[TEST_INPUTS], _targets(arrays[TEST_TARGETS]))
        else:
            chosen = held_out(np.arange(examples), self.test_fraction, seed)
            train, test = everything[~chosen], everything[chosen]
        labels = np.concatenate((train.targets, test.targets))
        return Dataset(_task(train, labels), train, test)


def _called(reference: str) -> Arrays:
    """What the user's function returns."""
    function = attribute_named(reference, said="data.path")
    with one_line(f"data.path: {reference}"):
        arrays = function()
        if not isinstance(arrays, Mapping):
            raise TypeError(f"expected arrays by name, got {type(arrays).__name__}")
        return {name: np.asarray(array) for name, array in arrays.items()}


def _targets(targets: np.ndarray) -> np.ndarray:
    """Labels (n,) int64, or numbers (n, k) float32."""
    if targets.dtype.kind in "biu" and targets.ndim == 1:
        return targets.astype(np.int64)
    if targets.dtype.kind not in "biuf":
        raise ValueError(f"{TARGETS}: expected numbers, got {targets.dtype}")
    return targets.reshape(len(targets), -1).astype(np.float32)


def _task(train: Examples, labels: np.ndarray) -> Task:
    from fedsim.tasks.images.tensors import visual_task
    from fedsim.tasks.tensors import TensorClassification, TensorRegression

    shape = train.inputs.shape[1:]
    if labels.dtype != np.int64:
        return TensorRegression(shape, labels.shape[1])
    class_names = tuple(str(number) for number in range(int(labels.max()) + 1))
    return visual_task(class_names, train.inputs) or TensorClassification(class_names, shape)
