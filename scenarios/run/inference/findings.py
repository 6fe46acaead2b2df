"""The guesses of an inference attack in every column, with the truth: all that a judge needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from fedsim.core.files import check_regular, load_npz, private_folder, reading, write_npz
from scenarios.run.directory import RunDirectory

COHORT = "cohort_"
"""Prefix of the columns for sums of cohorts of some size, such as `cohort_10`."""


@dataclass(frozen=True, eq=False)
class Findings:
    """The guesses of one entry about n clients.

    `clients` (n,) are the attacked clients; `resolved` (n,) is whether each has a recovered update. `guesses`
    maps a column to an array with a row for every client; `disaggregated` has rows for resolved clients only.
    `truth` holds the arrays that the judge of this kind of attack compares the guesses with.
    """

    key: str
    kind: Kind
    clients: NDArray[np.int64]
    resolved: NDArray[np.bool_]
    guesses: Mapping[str, NDArray[np.float32]]
    truth: Mapping[str, NDArray[Any]]

    def about(self, column: str) -> NDArray[np.int64]:
        """The positions in `clients` that the rows of a column belong to."""
        return np.flatnonzero(self.resolved) if column == "disaggregated" else np.arange(len(self.clients))

    def save(self, directory: RunDirectory) -> None:
        """Write the guesses to the attack's files, and the truth to a folder of its own.

        The truth of the training is kept elsewhere: runs may share a training and attack different clients.
        """
        directory.inference.mkdir(parents=True, exist_ok=True)
        private_folder(directory.inference_truth)
        about = json.dumps({"key": self.key, "kind": self.kind})
        write_npz(
            directory.inference / f"{self.key}.npz",
            about=np.array(about),
            clients=self.clients,
            resolved=self.resolved,
            **self.guesses,
        )
        write_npz(directory.inference_truth / f"{self.key}.npz", **self.truth)

    @classmethod
    def load(cls, directory: RunDirectory, key: str) -> Findings:
        """Findings as `save` left them."""
        with reading(directory.inference, "the guesses of a run"):
            check_regular(directory.inference_truth)
            guesses = load_npz(directory.inference / f"{key}.npz")
            truth = load_npz(directory.inference_truth / f"{key}.npz")
            about = json.loads(str(guesses.pop("about")))
            clients, resolved = guesses.pop("clients"), guesses.pop("resolved")
            return cls(about["key"], about["kind"], clients, resolved, guesses, truth)


def in_columns(name: str, values: Mapping[str, float | None]) -> dict[str, Any]:
    """A figure of a result: its columns under `name`, the columns of cohorts under `name_by_cohort`."""
    cohorts = {column: value for column, value in values.items() if column.startswith(COHORT)}
    figure: dict[str, Any] = {name: {c: v for c, v in values.items() if c not in cohorts}}
    if cohorts:
        figure[f"{name}_by_cohort"] = {c.removeprefix(COHORT): v for c, v in cohorts.items()}
    return figure


def mean_of(values: NDArray[Any]) -> float | None:
    """The mean, or None if a column is empty: JSON has no NaN."""
    return float(np.mean(values)) if len(values) else None


def each_column(findings: Findings) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.int64]]]:
    """Column, its guesses, and the positions in `clients` of their rows."""
    for column, guess in findings.guesses.items():
        yield column, guess, findings.about(column)
