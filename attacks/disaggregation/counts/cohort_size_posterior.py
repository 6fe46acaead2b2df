"""The posterior over each client's list of possible columns, given the cohort sizes.

Every client has a list of columns that meet its own constraints. The clients' columns must also add up to the
cohort sizes. `possible` removes the columns that this rules out. `posterior` weighs the rest by belief
propagation: a round tells a client how likely the others' ones add up to the cohort size with it and without
it, and the client weighs its columns by the messages of its rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

EVIDENCE_SHARE = 0.35
"""Share of a round's evidence that is used. Two columns of a client mostly differ in several rounds, and
another client's columns that make up for it differ in the same rounds, so that messages of different rounds
repeat each other. Calibrated on development seeds: of the columns above 0.99, 0.87 were right with all
evidence, and all of a hundred with this share."""
PROPAGATION_STEPS = 60
"""Iterations of belief propagation."""
MESSAGE_DAMPING = 0.5
"""Share of the old message in a new one."""
MESSAGE_BOUND = 12.0
"""Bound of a round's message, a log odds."""
LEAST_PROBABILITY = 1e-12
"""Least probability whose logarithm is taken."""
LEAST_CHANCE = 1e-6
"""Least chance of a zero or a one that a client tells a round."""

Lists = Sequence[NDArray[np.uint8]]


def possible(lists: Lists, sizes: NDArray[np.int64]) -> Lists | None:
    """The lists without impossible columns; None if a list becomes empty, because the input is contradictory.

    `sizes` (rounds,) is the sum of the true columns of all lists. A list with one column is certain, and its
    ones are subtracted from the sizes. Where the rest is zero, no other client has a one.
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


def posterior(
    lists: Lists, sizes: NDArray[np.int64], others: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """The probabilities of the columns in every list.

    `sizes` (rounds,) is the sum of the columns of the listed clients and of the clients in `others`
    (n, rounds), which has their chances of taking part.
    """
    unlisted = _distributions(others, _zero_ones(sizes))[-1]
    evidence = np.zeros((len(lists), len(sizes)))
    for _ in range(PROPAGATION_STEPS):
        weights = [
            softmax(EVIDENCE_SHARE * (columns @ messages))
            for columns, messages in zip(lists, evidence, strict=True)
        ]
        mean = np.array([weight @ columns for weight, columns in zip(weights, lists, strict=True)])
        # A client's message to a round must exclude the message that it got from that round.
        log_odds = logit(mean.clip(LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)) - EVIDENCE_SHARE * evidence
        chance = expit(log_odds).clip(LEAST_CHANCE, 1 - LEAST_CHANCE)
        messages = _messages(chance, sizes, unlisted)
        evidence = MESSAGE_DAMPING * evidence + (1 - MESSAGE_DAMPING) * messages
    return weights


def _messages(
    chance: NDArray[np.float64], sizes: NDArray[np.int64], unlisted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(K, rounds) log odds of a one of client k, from the sizes and the others' `chance` (K, rounds)."""
    before = _distributions(chance, unlisted)[:-1]
    after = _distributions(chance[::-1], _zero_ones(sizes))[-2::-1]
    number = np.arange(before.shape[2])

    def likelihood(ones: NDArray[np.int64]) -> NDArray[np.float64]:
        rest = np.broadcast_to(ones[:, None] - number, after.shape)
        matching = np.take_along_axis(after, np.maximum(rest, 0), axis=2)
        return np.asarray(np.einsum("krs,krs->kr", before, np.where(rest >= 0, matching, 0)))

    with_one, without = (np.log(likelihood(ones) + LEAST_PROBABILITY) for ones in (sizes - 1, sizes))
    return np.asarray((with_one - without).clip(-MESSAGE_BOUND, MESSAGE_BOUND))


def _zero_ones(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """(rounds, largest + 1) the distribution of the number of ones among no clients: zero for sure."""
    return np.asarray(np.arange(sizes.max() + 1) == np.zeros((len(sizes), 1)), dtype=np.float64)


def _distributions(chance: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K + 1, rounds, largest + 1) the distribution of the ones in `start` and the first k clients."""
    total = np.zeros((len(chance) + 1, *start.shape))
    total[0] = start
    for k, one in enumerate(chance[:, :, None]):
        total[k + 1] = total[k] * (1 - one)
        total[k + 1, :, 1:] += total[k, :, :-1] * one
    return total
