"""All columns at once from noisy aggregates, by belief propagation between aggregates and counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation, State
from attacks.disaggregation.solvers.joint import GOOD_ATTEMPT, JointSolver, agreement
from fedsim.core.progress import Progress

ENOUGH_FOUND = 0.9
"""Share of the columns found from which no other attempt is made."""
DRIFTING = 0.5
"""Total drift, in correlation lengths, from which one attempt is not trusted."""


class MessagePassing(JointSolver):
    """Joint recovery under noise, and with a model that moves from round to round.

    Eigenvalues of the Gram matrix that are `outliers` times as large as a typical large one belong to
    something that all clients share. The values of `outliers` are tried in turn, each with a fixed and with a
    moving model, the more promising one first. The attempt that finds most is kept, and a column on which
    good attempts differ loses confidence. One attempt is enough if it finds nearly every column of updates
    that do not drift. Uses no randomness.
    """

    name: Literal["message_passing"] = "message_passing"
    outliers: tuple[float, ...] = Field(default=(2.0, 1.0), min_length=1, strict=False)

    def search(
        self, passing: BeliefPropagation, windows: Windows, *, rng: np.random.Generator, progress: Progress
    ) -> State:
        """The attempt, repaired, with the highest total confidence in the open clients."""
        enough = ENOUGH_FOUND * passing.open_.sum()
        states: list[State] = []
        found_drifting = False
        for step, times in enumerate(self.outliers):
            progress(step, len(self.outliers))
            started: dict[bool, State] = {}
            for moving in (True,) if found_drifting else (False, True):
                started[moving] = passing.run(passing.start(times, moving=moving))
                if passing.found(started[moving]) >= enough:
                    break
            # Repairs take long: the more promising start comes first.
            for moving in sorted(started, key=lambda moving: -passing.found(started[moving])):
                state = passing.repaired(started[moving], most=self.repairs)
                # Exchanges take long to undo, and a model taken as fixed leaves too many if it moves.
                if moving or passing.found(state) >= enough:
                    state = self.settled(passing, windows, state)
                states.append(state)
                if passing.found(state) >= enough:
                    break
            # Where updates drift, an attempt may be sure of wrong columns: another one has to agree.
            found_drifting = passing.found(state) >= enough and state.scales.drift > DRIFTING
            if passing.found(state) >= enough and not found_drifting:
                break
        progress(len(self.outliers), len(self.outliers))
        best = max(states, key=passing.found)
        good = [state for state in states if passing.found(state) >= GOOD_ATTEMPT * passing.found(best)]
        votes = agreement(best.columns, [state.columns for state in good])
        return replace(best, confidence=best.confidence * votes)
