"""CIFAR-10 from a local copy: torchvision's folder, or one `.npz` file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedsim.data.image_data import ImageData
from fedsim.data.partition import Iid, Partition
from fedsim.errors import UserError
from fedsim.settings import Settings

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Cifar10(Settings):
    """Real 32×32 photographs in ten classes.

    `path` is a folder that holds `cifar-10-batches-py/` as torchvision leaves it, or an `.npz` file with
    `x_train`, `y_train`, `x_test`, `y_test` (uint8 images, height × width × 3).
    """

    name: Literal["cifar10"] = "cifar10"
    path: Annotated[Path, Field(strict=False)]
    partition: Partition = Iid()

    def load(self, seed: int) -> ImageData:
        """The images of the local copy; the seed plays no part."""
        if self.path.suffix == ".npz":
            return _from_npz(self.path)
        return _from_torchvision(self.path)


def _from_npz(path: Path) -> ImageData:
    if not path.is_file():
        raise UserError(
            f"data.path: there is no file {path} (expected an .npz with x_train, y_train, x_test, y_test)"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            x_train, y_train, x_test, y_test = (
                file[key] for key in ("x_train", "y_train", "x_test", "y_test")
            )
        return ImageData(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), CLASS_NAMES)
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"data.path: {path} is not a CIFAR-10 .npz file: {error}") from error


def _from_torchvision(root: Path) -> ImageData:
    from fedsim.torchvision_compat import torchvision

    data_set = torchvision().datasets.CIFAR10
    try:
        train, test = data_set(root, train=True), data_set(root, train=False)
    except RuntimeError as error:
        raise UserError(
            f"data.path: {root} holds no intact CIFAR-10 (expected cifar-10-batches-py/ inside it as "
            "torchvision downloads it, or the path of an .npz file)"
        ) from error
    return ImageData(
        train.data,
        np.array(train.targets, dtype=np.int64),
        test.data,
        np.array(test.targets, dtype=np.int64),
        CLASS_NAMES,
    )
