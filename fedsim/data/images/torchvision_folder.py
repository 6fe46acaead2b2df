"""Data sets as torchvision stores them, checked file by file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsim.core.errors import UserError
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.labelled import labelled_images


def read_torchvision(data_set: Any, root: Path) -> Dataset:
    """The images below `root`; `data_set` is torchvision's class, such as `CIFAR10`.

    A file that is missing or differs from the release (by its MD5) is a `UserError` that names it.
    """
    try:
        train, test = data_set(root, train=True), data_set(root, train=False)
    except (RuntimeError, OSError) as error:
        raise UserError(f"data.path: {_wrong_file(data_set, root)}") from error
    return labelled_images(
        tuple(train.classes),
        *(Examples(part.data, np.array(part.targets, dtype=np.int64)) for part in (train, test)),
    )


def _wrong_file(data_set: Any, root: Path) -> str:
    """A line about the first file that is not as released."""
    from torchvision.datasets.utils import check_integrity

    folder = root / data_set.base_folder
    if not folder.is_dir():
        name = data_set.__name__.lower()
        return (
            f"{root} holds no {name} (expected {data_set.base_folder}/ or {name}.npz inside it, or the path "
            f"of an .npz file): fedsim data get {name} --into {root}"
        )
    released = [*data_set.train_list, *data_set.test_list, (data_set.meta["filename"], data_set.meta["md5"])]
    for name, md5 in released:
        if not (folder / name).is_file():
            return f"{folder / name} is missing: the copy is not complete"
        if not check_integrity(folder / name, md5):
            return f"{folder / name} is damaged: its MD5 is not {md5}"
    return f"{folder} cannot be read"
