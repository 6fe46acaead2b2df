"""Texts of people: the user's own, the plays of Shakespeare, or generated ones."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from fedsim.core.errors import UserError
from fedsim.data.dataset import Dataset
from fedsim.data.partition import Natural, Partition
from fedsim.data.source import Source
from fedsim.data.split import TestFraction
from fedsim.data.text.people import Texts as People
from fedsim.data.text.people import read_people
from fedsim.data.text.sequences import text_dataset
from fedsim.data.text.tokens import AnyTokenisation, Words
from fedsim.tasks.text import NextWord

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching


class TextSource(Source):
    """What all sources of texts have in common: tokens, the length of a piece, and who is left out."""

    task_type: ClassVar = NextWord

    tokens: AnyTokenisation = Words()
    length: Annotated[int, Field(ge=2, le=4096)] = 20
    """Tokens in a training example."""
    min_words: NonNegativeInt = 200
    """People with fewer words are left out."""
    test_fraction: TestFraction = 0.1
    partition: Partition = Natural()

    @abstractmethod
    def people(self, seed: int) -> People:
        """The texts by person."""

    def load(self, seed: int) -> Dataset:
        """The texts as pieces of equal length; the last ones of every person are for testing."""
        return text_dataset(
            self.people(seed),
            self.tokens,
            length=self.length,
            min_words=self.min_words,
            test_fraction=self.test_fraction,
        )


class Texts(TextSource):
    """Texts by person: a folder of .txt files, a .jsonl or .csv file, or plays; generated without a path.

    Generated people have frequent words in common, rare words that few of them know, and a secret each.
    """

    name: Literal["texts"] = "texts"
    path: Annotated[Path | None, Field(strict=False)] = None
    client_field: str = "client"
    """The column or key that names the person."""
    text_field: str = "text"
    """The column or key with the text."""
    people_generated: PositiveInt = 137
    """How many people there are if the texts are generated."""
    sentences_generated: PositiveInt = 30
    """How many sentences each of them writes, beside the one with the secret."""

    def people(self, seed: int) -> People:
        """Read or generated."""
        if self.path is not None:
            return read_people(self.path, self.client_field, self.text_field)
        from fedsim.data.text.generated import generated_people

        return generated_people(self.people_generated, seed, self.sentences_generated)

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Always a `UserError`: the texts are the user's own."""
        raise UserError(
            "texts is for texts of your own: set data.path to a folder with a .txt file per person, or to a "
            ".jsonl or .csv file with the fields client and text"
        )


class Shakespeare(TextSource):
    """Plays of Shakespeare, one client per speaker: 137 speakers have 200 words or more."""

    copies: ClassVar = ("shakespeare.txt",)

    name: Literal["shakespeare"] = "shakespeare"
    path: Annotated[Path, Field(strict=False)] = Path("data")

    def people(self, seed: int) -> People:
        """The speeches by speaker."""
        file = self.path / self.copies[0] if self.path.is_dir() else self.path
        return read_people(file, "", "")

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Always a `UserError`: no package registry is known to have them."""
        raise UserError(
            f"shakespeare is on no package registry that we know of: put the plays into "
            f"{fetching.into / cls.copies[0]}, as speeches separated by blank lines, each after a line "
            "`Speaker:` (the file known as tiny Shakespeare has this form)"
        )
