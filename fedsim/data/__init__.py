"""Data sets: one settings class per source, each with `load(seed) -> Dataset`.

A copy that is incomplete or damaged is a `UserError` that names the file: a data set is loaded as it was
published, or not at all.
"""

from typing import Annotated

from pydantic import Field

from fedsim.core.plugins import Extensible
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.cifar10 import Cifar10
from fedsim.data.images.cifar100 import Cifar100
from fedsim.data.images.folder import Folder
from fedsim.data.images.lfw import Lfw
from fedsim.data.images.synthetic import Synthetic
from fedsim.data.partition import Dirichlet, Iid, Natural, Partition, Property
from fedsim.data.scheme import Owned
from fedsim.data.source import Source
from fedsim.data.tables.sources import BreastCancer, Digits, TableFile, Wine
from fedsim.data.tensors.source import Tensors
from fedsim.data.text.texts import Shakespeare, Texts

DataSource = Annotated[
    Synthetic
    | Cifar10
    | Cifar100
    | Lfw
    | Folder
    | Texts
    | Shakespeare
    | TableFile
    | BreastCancer
    | Digits
    | Wine
    | Tensors,
    Field(discriminator="name"),
    Extensible("data", Source),
]

__all__ = [
    "BreastCancer",
    "Cifar10",
    "Cifar100",
    "DataSource",
    "Dataset",
    "Digits",
    "Dirichlet",
    "Examples",
    "Folder",
    "Iid",
    "Lfw",
    "Natural",
    "Owned",
    "Partition",
    "Property",
    "Shakespeare",
    "Source",
    "Synthetic",
    "TableFile",
    "Tensors",
    "Texts",
    "Wine",
]
