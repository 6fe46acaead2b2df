"""How a text becomes tokens: one settings class per scheme.

A scheme is told all texts once and returns a `Tokeniser` with a fixed vocabulary. A real keyboard ships such
a vocabulary to everybody, so it is public; here it is made from the texts.
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedsim.core.errors import UserError
from fedsim.core.files import reading
from fedsim.core.settings import BY_NAME, Settings

WORD = re.compile(r"[\w']+|[^\w\s]")
"""A word with its apostrophes, or a punctuation mark."""
PAD, OTHER, END = "<pad>", "<other>", "<end>"
"""Padding, any token outside the vocabulary, and the end of a text."""

LARGEST_VOCABULARY = 1_000_000
"""Most tokens: a model holds two vectors for each, and a transcript one sum of these per round."""

Size = Annotated[int, Field(ge=4, le=LARGEST_VOCABULARY)]


@dataclass(frozen=True, eq=False)
class Tokeniser:
    """`vocabulary` names the tokens; `encode` gives the token numbers of one text, its end included."""

    vocabulary: tuple[str, ...]
    encode: Callable[[str], list[int]]


class Tokenisation(Settings, ABC):
    """A way to cut texts into tokens."""

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Tokeniser:
        """The tokeniser for these texts."""


class Words(Tokenisation):
    """Words in lower case and punctuation marks; the most frequent ones are in the vocabulary."""

    name: Literal["words"] = "words"
    vocabulary: Size = 8000
    """Most tokens, the three for padding, other words and the end included."""

    def fit(self, texts: Iterable[str]) -> Tokeniser:
        """Ties in frequency go by the alphabet."""
        return _by_frequency(words_of, texts, self.vocabulary)


class Characters(Tokenisation):
    """Single characters, the most frequent ones."""

    name: Literal["characters"] = "characters"
    vocabulary: Size = 256

    def fit(self, texts: Iterable[str]) -> Tokeniser:
        """Ties in frequency go by code point."""
        return _by_frequency(list, texts, self.vocabulary)


class HashedWords(Tokenisation):
    """Words in lower case, each in one of `buckets` by a hash: several words share a row of the model."""

    name: Literal["hashed_words"] = "hashed_words"
    buckets: Size = 1000

    def fit(self, texts: Iterable[str]) -> Tokeniser:
        """The buckets do not depend on the texts."""
        names = (PAD, OTHER, END, *(f"#{bucket}" for bucket in range(self.buckets)))

        def encode(text: str) -> list[int]:
            hashed = (zlib.crc32(word.encode()) % self.buckets for word in words_of(text))
            return [*(3 + bucket for bucket in hashed), 2]

        return Tokeniser(names, encode)


class TokenizerFile(Tokenisation):
    """A tokenizer.json of the Hugging Face library `tokenizers`, which has to be installed."""

    name: Literal["file"] = "file"
    path: Annotated[Path, Field(strict=False)] = Path("tokenizer.json")

    def fit(self, texts: Iterable[str]) -> Tokeniser:
        """The vocabulary of the file, after a token for padding and one for the end of a text."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise UserError(
                "data.tokens: a tokenizer file needs the package tokenizers: pip install tokenizers"
            ) from error
        with reading(self.path, "a tokenizer file"):
            content = self.path.read_text(encoding="utf-8")
            try:
                tokenizer = Tokenizer.from_str(content)
            except Exception as error:  # the library raises plain exceptions
                raise ValueError(str(error)) from error
        size = tokenizer.get_vocab_size()
        if size + 2 > LARGEST_VOCABULARY:
            raise UserError(
                f"data.tokens.path: {self.path} has {size} tokens, expected {LARGEST_VOCABULARY} at most"
            )
        names = {number: token for token, number in tokenizer.get_vocab().items()}
        vocabulary = (PAD, END, *(names.get(number, f"<{number}>") for number in range(max(names) + 1)))

        def encode(text: str) -> list[int]:
            return [*(2 + number for number in tokenizer.encode(text, add_special_tokens=False).ids), 1]

        return Tokeniser(vocabulary, encode)


AnyTokenisation = Annotated[
    Words | Characters | HashedWords | TokenizerFile, Field(discriminator="name"), BY_NAME
]


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text, in lower case."""
    return WORD.findall(text.lower())


def number_of_words(text: str) -> int:
    """How many words a text has; punctuation does not count."""
    return sum(token[0] == "'" or token[0].isalnum() for token in words_of(text))


def _by_frequency(split: Callable[[str], list[str]], texts: Iterable[str], size: int) -> Tokeniser:
    """The most frequent tokens of the texts."""
    frequency = Counter(token for text in texts for token in split(text))
    ranked = sorted(frequency, key=lambda token: (-frequency[token], token))
    vocabulary = (PAD, OTHER, END, *ranked[: size - 3])
    number = {token: place for place, token in enumerate(vocabulary)}

    def encode(text: str) -> list[int]:
        return [*(number.get(token, 1) for token in split(text)), 2]

    return Tokeniser(vocabulary, encode)
