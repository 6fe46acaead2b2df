"""CIFAR-100 from a local copy: torchvision's folder, or one `.npz` file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.data.archive import as_labels, one_line_about, read_arrays
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.labelled import labelled_images
from fedsim.data.images.torchvision_folder import read_torchvision
from fedsim.data.partition import Iid, Partition
from fedsim.data.source import Source
from fedsim.data.split import TestFraction, held_out
from fedsim.tasks.images import ImageClassification

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching


class Cifar100(Source):
    """Real 32×32 photographs in a hundred classes.

    `path` is an `.npz` file with `x_train`, `y_train` (uint8 images, 32 × 32 × 3), `class_names` and possibly
    `x_test`, `y_test`, or a folder that holds one as `cifar100.npz`, or that holds `cifar-100-python/` as
    torchvision leaves it. From a file without a test part the seed sets `test_fraction` of the images
    aside; with a test part that setting has no effect.
    """

    task_type: ClassVar = ImageClassification
    copies: ClassVar = ("cifar100.npz", "cifar-100-python")

    name: Literal["cifar100"] = "cifar100"
    path: Annotated[Path, Field(strict=False)]
    test_fraction: TestFraction = 0.2
    partition: Partition = Iid()

    def load(self, seed: int) -> Dataset:
        """The images of the local copy; the seed matters only to a copy without a test part."""
        copy = self.copy_in(self.path)
        if copy.suffix == ".npz":
            return self._from_npz(copy, seed)
        from fedsim.core.torchvision_compat import torchvision

        return read_torchvision(torchvision().datasets.CIFAR100, copy.parent)

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """torchvision's archive."""
        from fedsim.core.torchvision_compat import torchvision
        from fedsim.data.fetch import first_open, torchvision_archive

        data_set = torchvision().datasets.CIFAR100
        first_open(
            "cifar100",
            {"torchvision": lambda f: torchvision_archive(data_set, f)},
            fetching,
            otherwise=f"put the folder {data_set.base_folder}/ of {data_set.filename} into {fetching.into}/, "
            f"or x_train, y_train, class_names (and x_test, y_test) as {fetching.into / 'cifar100.npz'}",
        )

    def compare(self, data: Dataset) -> str:
        """torchvision's folder is loaded only if its files have the MD5 of the release."""
        if self.copy_in(self.path).suffix != ".npz":
            return "identical (MD5 of its files)"
        return f"{len(data.train)} + {len(data.test)} images, of 50000 + 10000 in the release"

    def _from_npz(self, path: Path, seed: int) -> Dataset:
        file = read_arrays(path, needed=("x_train", "y_train", "class_names"), optional=("x_test", "y_test"))
        with one_line_about(path):
            if ("x_test" in file) != ("y_test" in file):
                raise ValueError("expected both x_test and y_test, or neither")
            train, names = _part(file, "train"), tuple(map(str, file["class_names"]))
            if "x_test" in file:
                data = labelled_images(names, train, _part(file, "test"))
            else:
                test = held_out(np.arange(len(train)), self.test_fraction, seed)
                data = labelled_images(names, train[~test], train[test])
            if data.task.input_shape != (3, 32, 32) or len(names) != 100:
                raise ValueError(
                    f"expected 32×32 pixels in 100 classes, got {data.train.inputs.shape[1:]} in {len(names)}"
                )
            return data


def _part(file: Mapping[str, NDArray[Any]], part: str) -> Examples:
    """The training or the test part of an `.npz` file."""
    x, y = file[f"x_{part}"], as_labels(file[f"y_{part}"])
    if y.shape != x.shape[:1]:
        raise ValueError(f"y_{part}: {y.shape} for x_{part} {x.shape}")
    return Examples(x, y)
