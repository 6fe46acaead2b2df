"""Tables as data sets: a file with a target column, or a data set that scikit-learn brings along."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.partition import Iid, Partition
from fedsim.data.source import Source
from fedsim.data.split import TestFraction, held_out
from fedsim.data.tables.read import Table, read_table
from fedsim.tasks.tables import RowClassification, RowRegression, TableTask

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching

MOST_CLASSES = 100
"""Different values of a whole-numbered target up to which it is taken for classes."""


class TableSource(Source):
    """What all tables share: some rows are for testing, and features are scaled by the training part."""

    task_type: ClassVar = TableTask

    test_fraction: TestFraction = 0.2
    partition: Partition = Iid()


class TableFile(TableSource):
    """Your own table: a .csv or .parquet file with a target column, and perhaps one that names the client.

    A target of text, or of few whole numbers, is a class; any other is a number to predict. With
    `partition = "natural"` there is one client per value of the client column.
    """

    name: Literal["table"] = "table"
    path: Annotated[Path, Field(strict=False)] = Path("table.csv")
    target: str = "target"
    client: str | None = None

    def load(self, seed: int) -> Dataset:
        """The rows of the file."""
        table = read_table(self.path, self.target, self.client)
        return table_dataset(table, _is_class(table.target), self.test_fraction, seed)

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Always a `UserError`: the table is the user's own."""
        raise UserError("table is for a table of your own: set data.path to a .csv or .parquet file")


class BundledTable(TableSource):
    """A real data set that scikit-learn brings along: nothing to download."""

    loader: ClassVar[str]

    def load(self, seed: int) -> Dataset:
        """All rows; which of them are for testing depends on the seed."""
        from sklearn import datasets

        bunch = getattr(datasets, self.loader)()
        names = tuple(map(str, bunch.feature_names))
        target = np.array(bunch.target_names)[bunch.target].astype(np.str_)
        table = Table(np.asarray(bunch.data, dtype=np.float64), names, target, None)
        return table_dataset(table, True, self.test_fraction, seed)

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Nothing to do: the data come with scikit-learn."""


class BreastCancer(BundledTable):
    """Tumours, malignant or benign: 569 rows with 30 measurements each."""

    loader: ClassVar[str] = "load_breast_cancer"
    name: Literal["breast_cancer"] = "breast_cancer"


class Digits(BundledTable):
    """Handwritten digits: 1,797 rows of 64 grey values in ten classes."""

    loader: ClassVar[str] = "load_digits"
    name: Literal["digits"] = "digits"


class Wine(BundledTable):
    """Wines of three growers: 178 rows with 13 measurements each."""

    loader: ClassVar[str] = "load_wine"
    name: Literal["wine"] = "wine"


def table_dataset(table: Table, is_class: bool, test_fraction: float, seed: int) -> Dataset:
    """The rows in two parts. Features have mean 0 and standard deviation 1 in the training part."""
    if len(np.unique(table.target)) < 2:
        raise UserError(f"data.target: all {len(table.target)} rows have the same value: nothing to predict")
    test = held_out(np.arange(len(table.target)), test_fraction, seed)
    inputs = _scaled(table.features, ~test).astype(np.float32)
    task: RowClassification | RowRegression
    if is_class:
        classes, labels = np.unique(table.target.astype(np.str_), return_inverse=True)
        task = RowClassification(tuple(map(str, classes)), table.names)
        targets: NDArray[Any] = labels.astype(np.int64)
    else:
        task = RowRegression(table.names)
        targets = _scaled(table.target.astype(np.float64)[:, None], ~test)[:, 0].astype(np.float32)
    everything = Examples(inputs, targets, {}, table.owners)
    return Dataset(task, everything[~test], everything[test])


def _scaled(values: NDArray[np.float64], train: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The columns less their mean, in units of their standard deviation; a constant column becomes zero."""
    mean, sd = values[train].mean(axis=0), values[train].std(axis=0)
    return np.asarray((values - mean) / np.where(sd > 0, sd, 1))


def _is_class(target: NDArray[Any]) -> bool:
    if target.dtype.kind not in "iuf":
        return True
    whole = target.dtype.kind in "iu"
    return bool(whole and len(np.unique(target)) <= MOST_CLASSES)
