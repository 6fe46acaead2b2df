"""All columns at once where counts say too little to start from: sampling at falling temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from attacks.disaggregation.columns.attribution import attribute
from attacks.disaggregation.counts.windows import Windows
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.annealing import Evidence, annealed
from attacks.disaggregation.noise.belief_propagation import BeliefPropagation, State
from attacks.disaggregation.noise.known_participation import fitted
from attacks.disaggregation.solvers.joint import JointSolver, agreement
from fedsim.core.progress import Progress

MOST_SAMPLING = 2e8
"""Participations × rounds² up to which annealing is tried: 100 clients at a rate of .1 over 270 rounds, which
takes a few minutes."""
WORK_OF_REPLICAS = 8e7
"""The same for all replicas together, where there are more than three: 40 clients at a rate of .15 over 120
rounds get seven."""
VOTERS, MOST_REPLICAS = 3, 12
"""Replicas that vote on a column, the likeliest ones, and the most that are tried."""
CLEAR_NAMES = 0.95
"""Mean confidence in the names by noisy counts from which belief propagation goes on with them."""


class Annealing(JointSolver):
    """Gibbs sampling from a random start, cooled down; belief propagation finishes the columns.

    It needs no count to begin with, so it also works where counts are rare, noisy or mostly missing. Of the
    independent `replicas`, the one under whose columns the sums are likeliest is kept; a column on which it
    differs from the next likeliest loses confidence. By default there are 3 replicas, and up to 12 in small
    federations, where they take a second each, until the three likeliest agree. In the end, noisy counts name
    the columns all together. `cooling` is the factor of the inverse temperature from sweep to sweep.
    Eigenvalues that are `outliers` times as large as a typical one belong to what all clients share.
    """

    name: Literal["annealing"] = "annealing"
    outliers: PositiveFloat = 2.0
    replicas: PositiveInt | None = None
    cooling: float = Field(default=1.003, gt=1, le=2)

    def search(
        self, passing: BeliefPropagation, windows: Windows, *, rng: np.random.Generator, progress: Progress
    ) -> State:
        """The likeliest replica, whose confidence counts how many others agree on a column."""
        evidence = Evidence(windows, passing.prior.T, passing.cohort_sizes)
        start = passing.start(self.outliers, moving=True)
        model = passing.model(start)
        most = self.replicas or _affordable_replicas(passing)
        ranked: list[tuple[float, State]] = []
        for step, stream in enumerate(rng.spawn(most)):
            progress(step, most)
            columns, fit = annealed(evidence, model, cooling=self.cooling, rng=stream)
            state = self._finished(passing, windows, start.after(columns, fit))
            # How likely a replica found its own columns depends on where its fit has ended.
            refit = model.given(state.columns.T.astype(np.float64), passing.cohort_sizes)
            ranked.append((fitted(refit, start.observations.energy).misfit(), state))
            ranked.sort(key=lambda replica: replica[0])
            voters = [state for _, state in ranked[:VOTERS]]
            best = voters[0]
            votes = agreement(best.columns, [voter.columns for voter in voters])
            if len(voters) == VOTERS and votes.min() == 1:
                break
        progress(most, most)
        if not _names_are_clear(windows, best.columns):
            return _with_doubtful_names(passing, windows, best, voters)
        return replace(best, confidence=best.confidence * votes)

    def _finished(self, passing: BeliefPropagation, windows: Windows, state: State) -> State:
        """The state after belief propagation, if it knows whose column is which."""
        if not _names_are_clear(windows, state.columns):
            return state
        repaired = passing.repaired(passing.restarted(state, state.columns), most=self.repairs)
        return self.settled(passing, windows, repaired)


def _affordable_replicas(passing: BeliefPropagation) -> int:
    """More for smaller federations, where a replica takes less time and finds the columns less often."""
    work = passing.prior.sum() * passing.rounds**2
    return int(np.clip(WORK_OF_REPLICAS / max(work, 1.0), VOTERS, MOST_REPLICAS))


def _names_are_clear(windows: Windows, columns: NDArray[np.uint8]) -> bool:
    """Whether the counts say whose the columns are, as far as any fit.

    Belief propagation decides about one client at a time: if names are doubtful, it gives two clients the
    same column, or each other's.
    """
    if windows.exact:
        return True
    attribution = attribute(windows, columns)
    fits = attribution.column >= 0
    return bool(fits.any() and attribution.confidence[fits].mean() >= CLEAR_NAMES)


def _with_doubtful_names(
    passing: BeliefPropagation, windows: Windows, best: State, states: Sequence[State]
) -> State:
    """The columns of the best state under the names that fit noisy counts best, all together.

    Belief propagation then corrects single entries, unless two clients would have the same column. The
    confidence is the share of the `states` that have a column, under whatever name, times the probability of
    the name. It is 0 if belief propagation would have another column.
    """
    attribution = attribute(windows, best.columns)
    whose, fits = attribution.column.copy(), attribution.column >= 0
    whose[~fits] = np.setdiff1d(np.arange(len(whose)), whose[fits])
    named = best.columns[whose]
    # How loud an update is belongs to the column, not to the name.
    best = replace(best, relative_energy=best.relative_energy[whose])
    corrected = passing.restarted(best, named).columns
    both = np.concatenate((named, corrected))
    _, group, size = np.unique(both, axis=0, return_inverse=True, return_counts=True)
    new = (size[group.reshape(2, -1)[1]] == 1)[:, None]
    columns = np.where(new, corrected, named)
    found = [{column.tobytes() for column in state.columns} for state in states]
    agree = np.array([np.mean([column.tobytes() in known for known in found]) for column in columns])
    stands = fits & (columns == corrected).all(axis=1)
    return replace(best, columns=columns, confidence=np.where(stands, agree * attribution.confidence, 0.0))


def sampling_work(instance: Instance) -> float:
    """Participations × rounds²: what a sweep takes in which all participations move."""
    sizes = instance.problem.cohort_sizes
    ones = float(instance.expected.sum() if sizes is None else np.sum(sizes))
    return ones * instance.rounds**2
