"""CIFAR-10 from a local copy: torchvision's folder, or one `.npz` file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedsim.data.archive import one_line_about, read_arrays
from fedsim.data.image_data import ImageData
from fedsim.data.partition import Iid, Partition
from fedsim.data.torchvision_folder import read_torchvision
from fedsim.settings import Settings

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Cifar10(Settings):
    """Real 32×32 photographs in ten classes.

    `path` is an `.npz` file with `x_train`, `y_train`, `x_test`, `y_test` (uint8 images, 32 × 32 × 3), or a
    folder that holds one as `cifar10.npz`, or that holds `cifar-10-batches-py/` as torchvision leaves it.
    """

    name: Literal["cifar10"] = "cifar10"
    path: Annotated[Path, Field(strict=False)]
    partition: Partition = Iid()

    def load(self, seed: int) -> ImageData:
        """The images of the local copy; the seed plays no part."""
        if self.path.suffix == ".npz":
            return _from_npz(self.path)
        if (self.path / "cifar10.npz").exists():
            return _from_npz(self.path / "cifar10.npz")
        from fedsim.torchvision_compat import torchvision

        return read_torchvision(torchvision().datasets.CIFAR10, self.path)


def _from_npz(path: Path) -> ImageData:
    file = read_arrays(path, needed=("x_train", "y_train", "x_test", "y_test"))
    with one_line_about(path):
        data = ImageData(
            file["x_train"],
            file["y_train"].astype(np.int64),
            file["x_test"],
            file["y_test"].astype(np.int64),
            CLASS_NAMES,
        )
        if data.image_shape != (3, 32, 32):
            raise ValueError(f"expected images of 32×32 pixels, got {data.train_images.shape[1:]}")
        return data
