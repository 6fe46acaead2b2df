"""Which of its possible columns a client has, by how many clients took part in each round.

Every client has a list of columns that meet its own constraints. Together they also have to add up to the
sizes of the cohorts. What that rules out for certain is struck off (`possible`). For the rest the lists and
the rounds pass messages to each other (`weights`): a round tells a client how likely the others' ones add up
to the cohort's size with it and without it, and the client weighs its columns by what its rounds say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

SHARE = 0.35
"""Part of a round's evidence that counts. Two columns of a client mostly differ in several rounds, and so do
the columns of another that would make up for it: their rounds say the same thing. With all of it .87 of the
columns above .99 were right, with this part all of a hundred (development seeds)."""
STEPS = 60
DAMPING = 0.5
SURE = 12.0
"""Bound of a round's log odds."""
LEAST, LEAST_CHANCE = 1e-12, 1e-6

Lists = Sequence[NDArray[np.uint8]]


def possible(lists: Lists, sizes: NDArray[np.int64]) -> Lists | None:
    """The lists without columns that cannot be; None if nothing is left of one: then something is amiss.

    `sizes` (rounds,) is what the clients of the lists add up to. The only column of a client is its own, and
    takes its ones from the sizes; where nothing is left no other client has a one.
    """
    while True:
        known = [len(columns) == 1 for columns in lists]
        left = sizes.copy()
        for columns in lists:
            left -= columns[0] if len(columns) == 1 else 0
        shorter = [
            columns if one else columns[(columns <= left).all(axis=1)]
            for columns, one in zip(lists, known, strict=True)
        ]
        if left.min() < 0 or not all(map(len, shorter)):
            return None
        if sum(map(len, shorter)) == sum(map(len, lists)):
            return shorter
        lists = shorter


def weights(lists: Lists, sizes: NDArray[np.int64], others: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """For every list the probabilities of its columns.

    `sizes` (rounds,) is what the clients of the lists and of `others` (n, rounds) add up to; of the latter
    only their chances of taking part are known.
    """
    unknown = _sums(others, _none(sizes))[-1]
    evidence = np.zeros((len(lists), len(sizes)))
    for _ in range(STEPS):
        chosen = [softmax(SHARE * (columns @ told)) for columns, told in zip(lists, evidence, strict=True)]
        mean = np.array([weight @ columns for weight, columns in zip(chosen, lists, strict=True)])
        # What a client tells a round must not contain what it has from it.
        chance = expit(logit(mean.clip(LEAST, 1 - LEAST)) - SHARE * evidence)
        told = _told(chance.clip(LEAST_CHANCE, 1 - LEAST_CHANCE), sizes, unknown)
        evidence = DAMPING * evidence + (1 - DAMPING) * told
    return chosen


def _told(
    chance: NDArray[np.float64], sizes: NDArray[np.int64], unknown: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(K, rounds) log odds of a one of client k, from the size and the `chance` (K, rounds) of all others."""
    before, after = _sums(chance, unknown)[:-1], _sums(chance[::-1], _none(sizes))[-2::-1]
    number = np.arange(before.shape[2])

    def likelihood(ones: NDArray[np.int64]) -> NDArray[np.float64]:
        rest = np.broadcast_to(ones[:, None] - number, after.shape)
        matching = np.take_along_axis(after, np.maximum(rest, 0), axis=2)
        return np.asarray(np.einsum("krs,krs->kr", before, np.where(rest >= 0, matching, 0)))

    odds = np.log(likelihood(sizes - 1) + LEAST) - np.log(likelihood(sizes) + LEAST)
    return np.asarray(odds.clip(-SURE, SURE))


def _none(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """(rounds, most + 1) the probabilities of so many ones among no clients."""
    return np.asarray(np.arange(sizes.max() + 1) == np.zeros((len(sizes), 1)), dtype=np.float64)


def _sums(chance: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K + 1, rounds, most + 1) the probabilities of so many ones at the start and in the first k clients."""
    sums = np.zeros((len(chance) + 1, *start.shape))
    sums[0] = start
    for k, one in enumerate(chance[:, :, None]):
        sums[k + 1] = sums[k] * (1 - one)
        sums[k + 1, :, 1:] += sums[k, :, :-1] * one
    return sums
