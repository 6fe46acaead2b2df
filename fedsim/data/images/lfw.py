"""Labeled Faces in the Wild from a local copy: the pictures with the attributes file, or one `.npz`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.data.archive import one_line_about, read_arrays
from fedsim.data.dataset import Attributes, Dataset, Examples
from fedsim.data.images.labelled import labelled_images
from fedsim.data.images.pictures import read_pictures
from fedsim.data.partition import Iid, Partition
from fedsim.data.source import Source
from fedsim.data.split import TestFraction, held_out
from fedsim.tasks.images import ImageClassification

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching

# The face, as scikit-learn crops it from the 250×250 pictures and halves it to 62×47.
_FACE_CROP = (78, 70, 172, 195)
_FACE_HEIGHT, _FACE_WIDTH = 62, 47


class Lfw(Source):
    """Real faces, 62×47, with attributes: who is male, wears glasses, and so on.

    `path` is an `.npz` file with `images`, `person`, `male`, `attributes`, `attribute_names`, or a folder
    that holds one as `lfw.npz`, or that holds `lfw_funneled/Name/Name_0001.jpg` and `lfw_attributes.txt`.

    The task is to tell whether a face has the attribute `task`; all attributes stay with the images.
    Classifiers found the attributes, and some are wrong: a positive value means that a face has it. The seed
    sets about `test_fraction` of the images aside, and no person is in both parts.
    """

    task_type: ClassVar = ImageClassification
    copies: ClassVar = ("lfw.npz", "lfw_funneled")

    name: Literal["lfw"] = "lfw"
    path: Annotated[Path, Field(strict=False)]
    task: str = "male"
    test_fraction: TestFraction = 0.2
    partition: Partition = Iid()

    def load(self, seed: int) -> Dataset:
        """The faces of the local copy; the seed decides which people are for testing."""
        copy = self.copy_in(self.path)
        faces = _from_npz(copy) if copy.suffix == ".npz" else _from_folder(copy.parent)
        everything = Examples(faces.images, self._labels(faces.attributes), faces.attributes)
        test = held_out(faces.person, self.test_fraction, seed)
        return labelled_images((f"not {self.task}", self.task), everything[~test], everything[test])

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Always a `UserError`: the host that LFW was published on is gone."""
        raise UserError(
            "LFW is no longer offered for download: put lfw_funneled/ (with Name/Name_0001.jpg inside) and "
            f"lfw_attributes.txt into {fetching.into}/, or images, person, male, attributes, attribute_names "
            f"as {fetching.into / 'lfw.npz'}"
        )

    def compare(self, data: Dataset) -> str:
        """By the number of faces: no checksums of the release are known."""
        return f"{len(data.train) + len(data.test)} faces, of 13143 with attributes in the release"

    def _labels(self, attributes: Attributes) -> NDArray[np.int64]:
        for name, has in attributes.items():
            if name.casefold() == self.task.casefold():
                return has.astype(np.int64)
        raise UserError(f"data.task is {self.task!r}: expected one of {', '.join(attributes)}")


@dataclass(frozen=True)
class _Faces:
    """All faces of a copy: (n, 62, 47, 3) images, (n,) names, and attributes of the images."""

    images: NDArray[np.uint8]
    person: NDArray[np.str_]
    attributes: Attributes

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1:] != (_FACE_HEIGHT, _FACE_WIDTH, 3):
            raise ValueError(
                f"images: expected (n, {_FACE_HEIGHT}, {_FACE_WIDTH}, 3), got {self.images.shape}"
            )
        for name, column in {"person": self.person, **self.attributes}.items():
            if column.shape != self.images.shape[:1]:
                raise ValueError(f"{name}: {column.shape} for {len(self.images)} images")


def _from_npz(path: Path) -> _Faces:
    file = read_arrays(path, needed=("images", "person", "male", "attributes", "attribute_names"))
    with one_line_about(path):
        table, names = file["attributes"], list(map(str, file["attribute_names"]))
        if table.ndim != 2 or table.shape[1] != len(names):
            raise ValueError(f"attributes: expected (n, {len(names)}), got {table.shape}")
        columns = {"Male": file["male"], **dict(zip(names, table.T, strict=True))}
        for name, column in columns.items():
            if not np.isin(column, (0, 1)).all():
                raise ValueError(f"{name}: expected 0 and 1 only")
        return _Faces(file["images"], file["person"], {name: column == 1 for name, column in columns.items()})


def _from_folder(root: Path) -> _Faces:
    pictures, listing = root / "lfw_funneled", root / "lfw_attributes.txt"
    if not pictures.is_dir() or not listing.is_file():
        raise UserError(
            f"data.path: {root} holds no LFW (expected lfw_funneled/Name/Name_0001.jpg and "
            "lfw_attributes.txt inside it, or the path of an .npz file)"
        )
    names, rows = _read_listing(listing)
    files = [pictures / person / f"{person}_{number:04}.jpg" for person, number in rows]
    _check_complete(pictures, listing, files)
    values = np.array(list(rows.values()))
    return _Faces(
        read_pictures(files, _FACE_HEIGHT, _FACE_WIDTH, _face),
        np.array([person for person, _ in rows]),
        {name: column > 0 for name, column in zip(names, values.T, strict=True)},
    )


def _face(picture: Image.Image) -> Image.Image:
    if picture.size != (250, 250):
        raise ValueError(f"expected 250×250 pixels, got {picture.width}×{picture.height}")
    return picture.crop(_FACE_CROP).resize((_FACE_WIDTH, _FACE_HEIGHT))


def _check_complete(pictures: Path, listing: Path, listed: list[Path]) -> None:
    there = set(pictures.glob("*/*.jpg"))
    missing = [file for file in listed if file not in there]
    if missing:
        raise UserError(
            f"data.path: {len(missing)} of the {len(listed)} pictures that {listing} lists are missing, "
            f"the first is {missing[0]}: the copy is not complete"
        )
    # The release describes all but 90 of its 13,233 pictures; a listing that was cut off describes far
    # fewer.
    if len(listed) < 0.95 * len(there):
        raise UserError(
            f"data.path: {listing} describes only {len(listed)} of {len(there)} pictures: it is not complete"
        )


def _read_listing(listing: Path) -> tuple[list[str], dict[tuple[str, int], list[float]]]:
    """Names of the attributes, and (person, number of the picture) → their values."""
    names: list[str] = []
    rows: dict[tuple[str, int], list[float]] = {}
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"data.path: {listing} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.lstrip("#").strip().split("\t")]
        if line.startswith("#"):
            if cells[:2] == ["person", "imagenum"]:
                names = cells[2:]
            continue
        if line.strip():
            person, image, values = _read_row(cells, len(names), f"{listing}, line {number}")
            rows[person, image] = values
    if not names or not rows:
        raise UserError(f"data.path: {listing} has no line '# person imagenum …' with attributes below it")
    return names, rows


def _read_row(cells: list[str], attributes: int, where: str) -> tuple[str, int, list[float]]:
    if len(cells) != attributes + 2:
        raise UserError(f"data.path: {where}: {len(cells)} columns, expected {attributes + 2}")
    try:
        values: list[Any] = [int(cells[1]), *map(float, cells[2:])]
    except ValueError as error:
        raise UserError(f"data.path: {where}: {error}") from error
    return cells[0].replace(" ", "_"), values[0], values[1:]
