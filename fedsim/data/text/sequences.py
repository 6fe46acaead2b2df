"""From texts to examples: pieces of equal length, and the tokens that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.text.tokens import Tokenisation, Tokeniser, number_of_words
from fedsim.tasks.text import NextWord
from fedsim.tasks.text.next_word import NO_TARGET, PADDING


def text_dataset(
    people: Mapping[str, Sequence[str]],
    tokens: Tokenisation,
    *,
    length: int,
    min_words: int,
    test_fraction: float,
) -> Dataset:
    """The texts of everybody who wrote at least `min_words` words, in pieces of `length` tokens.

    The last `test_fraction` of a person's pieces is for testing, at least one piece of everybody's is for
    training. Texts of other people are left out before the vocabulary is made.
    """
    kept = {
        person: texts for person, texts in people.items() if sum(map(number_of_words, texts)) >= min_words
    }
    if not kept:
        longest = max(sum(map(number_of_words, texts)) for texts in people.values())
        raise UserError(
            f"data.min_words is {min_words}: none of the {len(people)} people wrote that much "
            f"(at most {longest})"
        )
    tokeniser = tokens.fit(text for texts in kept.values() for text in texts)
    parts: tuple[list[Examples], list[Examples]] = ([], [])
    for number, texts in enumerate(kept.values()):
        pieces = _pieces(texts, tokeniser, length, owner=number)
        training = max(1, len(pieces) - round(test_fraction * len(pieces)))
        parts[0].append(pieces[:training])
        parts[1].append(pieces[training:])
    train, test = map(_together, parts)
    if not len(test):
        raise UserError(
            f"data.test_fraction is {test_fraction}: nobody's text is long enough to set a piece of "
            f"{length} tokens aside for testing"
        )
    return Dataset(NextWord(tokeniser.vocabulary, length), train, test)


def _pieces(texts: Sequence[str], tokeniser: Tokeniser, length: int, *, owner: int) -> Examples:
    """All texts of a person in one stream, cut into pieces; the last one is padded."""
    stream = np.array([token for text in texts for token in tokeniser.encode(text)], dtype=np.int32)
    number = max(1, -(-(len(stream) - 1) // length))
    inputs, targets = (
        _filled(part, number * length, fill).reshape(number, length)
        for part, fill in ((stream[:-1], PADDING), (stream[1:], NO_TARGET))
    )
    return Examples(inputs, targets.astype(np.int64), {}, np.full(number, owner, dtype=np.int64))


def _filled(stream: NDArray[np.int32], size: int, fill: int) -> NDArray[np.int32]:
    filled = np.full(size, fill, dtype=np.int32)
    filled[: len(stream)] = stream
    return filled


def _together(parts: Sequence[Examples]) -> Examples:
    owners = [part.owners for part in parts if part.owners is not None]
    return Examples(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.targets for part in parts]),
        {},
        np.concatenate(owners),
    )
