"""The contract of a data source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fedsim.core.errors import UserError
from fedsim.core.plugins import PlugIn
from fedsim.data.dataset import Dataset
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching


class Source(PlugIn, ABC):
    """A data set. Its settings say where the copy is, what of it is used, and how it is dealt out."""

    task_type: ClassVar[type[Task] | None]
    """The task of its examples: known before anything is loaded, or None if only the data tell."""
    copies: ClassVar[tuple[str, ...]] = ()
    """Names of a copy inside a data folder; the first one that exists is used."""

    @abstractmethod
    def load(self, seed: int) -> Dataset:
        """The examples, complete and checked; a `UserError` otherwise."""

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Put a copy into the data folder, or raise a `UserError` that says which file to put there."""
        raise UserError(f"{cls.__name__} does not say where to get its data")

    @model_validator(mode="after")
    def _can_be_dealt_out(self) -> Self:
        if "partition" not in type(self).model_fields:
            raise PydanticCustomError(
                "partition", "its class has no field `partition`, such as Partition = Iid()"
            )
        return self

    def compare(self, data: Dataset) -> str:
        """One line about how the loaded copy compares with the release."""
        return "there is none to compare with"

    @classmethod
    def copy_in(cls, path: Path) -> Path:
        """The copy that a path means: itself if it is an .npz file, or else the copy inside the folder.

        A folder without a copy gives the path of the last form, which the reader of that form complains
        about.
        """
        if path.suffix == ".npz":
            return path
        inside = [path / name for name in cls.copies]
        return next((copy for copy in inside if copy.exists()), inside[-1])
