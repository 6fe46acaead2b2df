"""Generated texts of people who share frequent words, know rare ones, and have a secret each."""

from __future__ import annotations

import numpy as np

from fedsim.core.seeds import Stage, stream

_ONSETS = (
    "b",
    "br",
    "c",
    "ch",
    "d",
    "f",
    "g",
    "gr",
    "h",
    "k",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "r",
    "s",
    "sh",
    "t",
    "v",
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "oo")
_ENDS = ("", "n", "r", "l", "s", "nd")

COMMON, RARE = 300, 1500
"""Words that everybody may use, by Zipf's law, and words of which each person knows a few."""
RARE_KNOWN = 30
"""Rare words that a person knows."""
SENTENCES = 30
WORDS_PER_SENTENCE = (6, 12)
RARE_SHARE = 0.15
"""Part of the words in a sentence that are rare."""
FOLLOWERS = 6
"""Common words that may follow a common word; a model can learn them."""


def generated_people(number: int, seed: int, sentences_each: int = SENTENCES) -> dict[str, list[str]]:
    """Person → sentences. Every person also writes one sentence with a code that nobody else knows."""
    rng = stream(seed, Stage.DATA)
    words = _invented(COMMON + RARE, rng)
    common, rare = words[:COMMON], words[COMMON:]
    frequency = 1 / np.arange(1, COMMON + 1)
    frequency /= frequency.sum()
    followers = rng.choice(COMMON, size=(COMMON, FOLLOWERS), p=frequency)
    people = {}
    for person in range(number):
        known = rng.choice(RARE, size=RARE_KNOWN, replace=False)
        sentences = []
        for _ in range(sentences_each):
            length, word = int(rng.integers(*WORDS_PER_SENTENCE)), int(rng.choice(COMMON, p=frequency))
            sentence = []
            for _ in range(length):
                sentence.append(common[word])
                word = int(followers[word, rng.integers(FOLLOWERS)])
                if rng.random() < RARE_SHARE:
                    sentence.append(rare[int(rng.choice(known))])
            sentences.append(" ".join(sentence) + ".")
        # The secret is written before the end: the last pieces of a text are for testing.
        sentences.insert(int(rng.integers(max(1, sentences_each // 2))), f"my code is {secret(person)}.")
        people[f"person {person}"] = sentences
    return people


def secret(person: int) -> str:
    """The word that this person alone writes."""
    return f"secret{person:05d}"


def _invented(number: int, rng: np.random.Generator) -> list[str]:
    """Different words of two or three syllables."""
    words: dict[str, None] = {}
    while len(words) < number:
        syllables = [
            "".join(str(rng.choice(part)) for part in (_ONSETS, _VOWELS, _ENDS))
            for _ in range(int(rng.integers(2, 4)))
        ]
        words["".join(syllables)] = None
    return list(words)
