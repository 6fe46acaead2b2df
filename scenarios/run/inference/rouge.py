"""How near guessed pieces of text are to the true ones: matching, ROUGE, and bags of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Piece = NDArray[np.int64]


def matched(guesses: Sequence[Piece], truth: Sequence[Piece]) -> list[tuple[int, int]]:
    """Pairs (guess, true piece) with the most words in common, one guess for each piece at most."""
    # Imported here, because it takes half a second that a run needs only after its training.
    from scipy.optimize import linear_sum_assignment

    if not guesses or not truth:
        return []
    _, numbers = np.unique(np.concatenate((*guesses, *truth)), return_inverse=True)
    ends = np.cumsum([len(piece) for piece in (*guesses, *truth)])[:-1]
    words = int(numbers.max()) + 1
    counts = [np.bincount(piece, minlength=words) for piece in np.split(numbers, ends)]
    mine, theirs = np.array(counts[: len(guesses)]), np.array(counts[len(guesses) :])
    common = np.array([np.minimum(mine, one).sum(axis=1) for one in theirs]).T
    lengths = mine.sum(axis=1)[:, None] + theirs.sum(axis=1)
    # Of two guesses with the same words, the one with more of them in place.
    places = np.array([[_in_place(guess, one) for one in truth] for guess in guesses])
    rows, columns = linear_sum_assignment(-(2 * common + 0.01 * places) / lengths)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def _in_place(guess: Piece, piece: Piece) -> int:
    shorter = min(len(guess), len(piece))
    return int((guess[:shorter] == piece[:shorter]).sum())


def rouge(guesses: Sequence[Piece], truth: Sequence[Piece]) -> dict[str, float]:
    """ROUGE-1, -2 and -L (F-measures) of matched pieces, mean over the larger number of pieces.

    The figures are those of torchmetrics, whose import takes longer than a small run.
    """
    pairs = [(guesses[guess].tolist(), truth[piece].tolist()) for guess, piece in matched(guesses, truth)]
    pieces = max(1, len(guesses), len(truth))
    return {
        "rouge_1": sum(_n_grams(*pair, 1) for pair in pairs) / pieces,
        "rouge_2": sum(_n_grams(*pair, 2) for pair in pairs) / pieces,
        "rouge_l": sum(_f_measure(_longest_common(*pair), *map(len, pair)) for pair in pairs) / pieces,
    }


def bag_f1(guesses: Sequence[Piece], truth: Sequence[Piece]) -> float:
    """F-measure of the words with their multiplicities, wherever they stand."""
    mine, theirs = ([token for piece in pieces for token in piece.tolist()] for pieces in (guesses, truth))
    return _n_grams(mine, theirs, 1)


def _n_grams(guess: list[int], truth: list[int], n: int) -> float:
    """F-measure of the runs of n tokens."""
    mine, theirs = (Counter(zip(*(text[k:] for k in range(n)), strict=False)) for text in (guess, truth))
    return _f_measure((mine & theirs).total(), mine.total(), theirs.total())


def _longest_common(guess: list[int], truth: list[int]) -> int:
    """Length of the longest sequence that both hold in this order."""
    best = [0] * (len(truth) + 1)
    for token in guess:
        before = best
        best = [0]
        for place, other in enumerate(truth):
            best.append(before[place] + 1 if token == other else max(before[place + 1], best[-1]))
    return best[-1]


def _f_measure(common: int, guessed: int, true: int) -> float:
    return 2 * common / (guessed + true) if common else 0.0
