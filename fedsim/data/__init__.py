"""Data sets: one settings class per source, each with `load(seed) -> ImageData`."""

from typing import Annotated

from pydantic import Field

from fedsim.data.cifar10 import Cifar10
from fedsim.data.image_data import ImageData
from fedsim.data.partition import Dirichlet, Iid, Owned, Partition
from fedsim.data.synthetic import Synthetic
from fedsim.settings import BY_NAME

DataSource = Annotated[Synthetic | Cifar10, Field(discriminator="name"), BY_NAME]

__all__ = ["Cifar10", "DataSource", "Dirichlet", "Iid", "ImageData", "Owned", "Partition", "Synthetic"]
