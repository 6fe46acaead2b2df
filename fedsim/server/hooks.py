"""Hooks: code that looks at a federation between two rounds, such as progress bars and checkpoints."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsim.core.progress import Progress
from fedsim.records import TranscriptWriter
from fedsim.server.resuming import Stateless


class RoundHook(Stateless):
    """Called before the first round and after every round; a subclass overrides what it needs.

    `done` is the number of rounds completed so far, those before a resumed run's checkpoint included. `model`
    (dim,) is the model that the server will send next, read-only. A hook must not change the federation; it
    may end it by raising. A hook that remembers something between rounds overrides `state` and `load_state`,
    the same contract as a strategy's.
    """

    def on_start(self, done: int, model: NDArray[np.float32]) -> None:
        """The rounds are about to begin, or to continue."""

    def after_round(self, done: int, model: NDArray[np.float32]) -> None:
        """A round is over, telemetry included."""


class ReportProgress(RoundHook):
    """Tells a progress bar how many of all rounds are done."""

    def __init__(self, progress: Progress, rounds: int) -> None:
        self._progress, self._rounds = progress, rounds

    def on_start(self, done: int, model: NDArray[np.float32]) -> None:
        """Show where a resumed run continues."""
        self._progress(done, self._rounds)

    def after_round(self, done: int, model: NDArray[np.float32]) -> None:
        """One round more."""
        self._progress(done, self._rounds)


class DivergedError(Exception):
    """A sum of updates is not finite; `round_index` counts from 0."""

    def __init__(self, round_index: int) -> None:
        super().__init__(f"the sum of round {round_index} is not finite")
        self.round_index = round_index


class StopAtDivergence(RoundHook):
    """Ends a training whose latest sum is not finite: no later round could repair it."""

    def __init__(self, transcript: TranscriptWriter) -> None:
        self._transcript = transcript

    def after_round(self, done: int, model: NDArray[np.float32]) -> None:
        """Raise `DivergedError` if the sum of this round is not finite."""
        if not self._transcript.finite:
            raise DivergedError(done - 1)
