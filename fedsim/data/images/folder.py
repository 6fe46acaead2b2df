"""The user's own labelled pictures: a folder with one folder of pictures per class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from PIL import Image, ImageOps
from pydantic import Field, PositiveInt

from fedsim.core.errors import UserError
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.labelled import labelled_images
from fedsim.data.images.pictures import read_pictures
from fedsim.data.partition import Iid, Partition
from fedsim.data.source import Source
from fedsim.data.split import TestFraction, held_out
from fedsim.tasks.images import ImageClassification

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching

_PICTURES = {".png", ".jpg", ".jpeg"}


class Folder(Source):
    """Your own pictures: one folder per class, with .png or .jpg files in it.

    Classes are the folders below `path` in alphabetical order. The largest central square of a picture is
    resized to `size` × `size` pixels. The seed sets `test_fraction` of the pictures aside.
    """

    task_type: ClassVar = ImageClassification

    name: Literal["folder"] = "folder"
    path: Annotated[Path, Field(strict=False)]
    size: PositiveInt = 32
    test_fraction: TestFraction = 0.2
    partition: Partition = Iid()

    def load(self, seed: int) -> Dataset:
        """The pictures of all classes; which of them are for testing depends on the seed."""
        classes = self._classes()
        files = [file for class_files in classes.values() for file in class_files]
        labels = np.repeat(np.arange(len(classes)), [len(class_files) for class_files in classes.values()])
        everything = Examples(read_pictures(files, self.size, self.size, self._fit), labels)
        test = held_out(np.arange(len(files)), self.test_fraction, seed)
        return labelled_images(tuple(classes), everything[~test], everything[test])

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Always a `UserError`: the pictures are the user's own."""
        raise UserError(
            "folder is for pictures of your own: put them into "
            f"{fetching.into}/CLASS_NAME/*.png (or .jpg), one folder per class"
        )

    def _fit(self, picture: Image.Image) -> Image.Image:
        return ImageOps.fit(picture, (self.size, self.size))

    def _classes(self) -> dict[str, list[Path]]:
        """Class → its files, both in alphabetical order; hidden files and folders are ignored."""
        if not self.path.is_dir():
            raise UserError(
                f"data.path: there is no folder {self.path} (expected one with a folder per class)"
            )
        folders = [entry for entry in _visible(self.path) if entry.is_dir()]
        if len(folders) < 2:
            raise UserError(
                f"data.path: {self.path} holds {len(folders)} folders (expected at least two, one per class)"
            )
        classes = {folder.name: _visible(folder) for folder in folders}
        for name, files in classes.items():
            if not files:
                raise UserError(f"data.path: {self.path / name} is empty (expected .png or .jpg files)")
            for file in files:
                # An interrupted download may leave such a file, too.
                if file.suffix.lower() not in _PICTURES:
                    raise UserError(
                        f"data.path: {file} is neither .png nor .jpg: move it out of the class folder"
                    )
        return classes


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"data.path: {folder} cannot be read: {error.strerror}") from error
