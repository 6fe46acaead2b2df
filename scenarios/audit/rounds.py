"""The table of rounds: which rounds the rows of a log are, how many updates each holds, and their weight."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport
from fedsim.core.errors import UserError
from fedsim.core.files import reading

COHORT_SIZE_DIGITS = 12
"""Most digits of a cohort size. No federation is larger, and sums over many rounds fit into 64 bits."""


@dataclass(frozen=True)
class RoundTable:
    """`rounds` (n,) int64, the round of each row, ascending from 0 on, perhaps with gaps.

    `cohort_sizes` (n,) int64 is the number of updates in each row, and `weights` (n,) float64 their total
    weight; None if nobody says. The weight of a void round is 0.
    """

    rounds: NDArray[np.int64]
    cohort_sizes: NDArray[np.int64]
    weights: NDArray[np.float64] | None

    @property
    def gaps(self) -> NDArray[np.int64]:
        """The rounds before the last one that have no row."""
        return np.setdiff1d(np.arange(self.rounds.max(initial=-1) + 1), self.rounds)

    def of(self, chosen: NDArray[np.bool_]) -> RoundTable:
        """The chosen rows (n,) alone."""
        weights = None if self.weights is None else self.weights[chosen]
        return RoundTable(self.rounds[chosen], self.cohort_sizes[chosen], weights)

    @classmethod
    def read(cls, path: Path) -> RoundTable:
        """The table in a CSV file with a line per row; without a column `round` they are in order."""
        lines: list[tuple[int, int, float | None]] = []
        with reading(path, "a CSV file of cohort sizes"):
            with path.open(newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
                reader = csv.DictReader(file)
                columns = set(reader.fieldnames or ())
                if "cohort_size" not in columns:
                    raise UserError(f"{path}, line 1: expected a column cohort_size")
                for row in reader:
                    where = f"{path}, line {reader.line_num}"
                    number = _whole(row["round"], "round", where) if "round" in columns else len(lines)
                    weight = _weight(row["weight"], where) if "weight" in columns else None
                    lines.append((number, _whole(row["cohort_size"], "cohort_size", where), weight))
            rounds = np.array([line[0] for line in lines], dtype=np.int64)
            order = np.argsort(rounds, kind="stable")
            if (np.diff(rounds[order]) == 0).any():
                twice = int(rounds[order][1:][np.diff(rounds[order]) == 0][0])
                raise ValueError(f"its column round has {twice} twice")
            if len(rounds) and rounds.min() == 1 and rounds.max() == len(rounds):
                raise ValueError("its column round begins at 1: rounds are counted from 0")
            sizes = np.array([line[1] for line in lines], dtype=np.int64)[order]
            weights = None
            if lines and lines[0][2] is not None:
                weights = np.array([line[2] for line in lines], dtype=np.float64)[order]
        return cls(rounds[order], sizes, weights)


def _whole(text: str | None, name: str, where: str) -> int:
    digits = str(text).strip()
    if not digits.isdecimal() or len(digits) > COHORT_SIZE_DIGITS:
        raise UserError(f"{where}: {name} is {text!r}, expected a whole number")
    return int(digits)


def _weight(text: str | None, where: str) -> float:
    try:
        weight = float(str(text))
    except ValueError:
        weight = -1.0
    if weight < 0 or math.isinf(weight):
        raise UserError(f"{where}: weight is {text!r}, expected a number, 0 or more")
    return 0.0 if math.isnan(weight) else weight


def counts_of_rows(counts: ParticipationReport, rounds: NDArray[np.int64]) -> ParticipationReport:
    """Counts over rounds as counts over rows, where `rounds` (n,) are the rounds that have a row.

    If rounds of a window have no row, nobody knows how often the client took part in those. The rest of the
    count then has a hypergeometric distribution: the count becomes its mean, with an error of its width.
    Windows without any row disappear.
    """
    start, stop = np.searchsorted(rounds, counts.start), np.searchsorted(rounds, counts.stop)
    length, left = counts.stop - counts.start, stop - start
    share = counts.count / length
    lost = (length - left) / np.maximum(length - 1, 1)
    # Noisy counts may lie outside of what is possible.
    variance = left * lost * _gaussian_variance(np.clip(np.nan_to_num(share), 0, 1))
    sd = np.sqrt((counts.sd * left / length) ** 2 + variance)
    kept = left > 0
    return replace(
        counts,
        client=counts.client[kept],
        start=start[kept],
        stop=stop[kept],
        count=np.where(left < length, left * share, counts.count)[kept],
        noise_sd=sd[kept],
        laplace=(counts.is_laplace & (left == length))[kept],
    )


def _gaussian_variance(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) the variance with which a Gaussian gives 0 and 1 the odds of a coin that shows 1 with chance p.

    Solvers treat errors as Gaussian. With the variance of the coin itself, p (1 - p), the Gaussian would make
    the rarer side of a biased coin much too rare. At p = ½ both variances are ¼.
    """
    rare = np.minimum(p, 1 - p)
    with np.errstate(divide="ignore", invalid="ignore"):
        matched = (1 - 2 * rare) / (2 * np.log((1 - rare) / rare))
    return np.where(rare == 0, 0.0, np.where(rare > 0.49, 0.25, matched))
