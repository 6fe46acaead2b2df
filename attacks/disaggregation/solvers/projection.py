"""All columns at once, by reflections between the column space and the binary columns.

Two sets are easy to project on: the column space of the aggregates, cut by the counts (one matrix
product), and the 0/1 columns with the right counts (sorting inside windows). A relaxed reflection
iteration (Douglas–Rachford) between them finds a point of both, for all clients in one product per step.

Accepted columns help to find the others (*peeling*): clients take part independently, so the overlap of a
wanted column with a known one is nearly given by the counts, a soft linear measurement of the former.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from attacks.disaggregation.affine import AffineSpace
from attacks.disaggregation.attribution import Pool
from attacks.disaggregation.binary import BinarySet
from attacks.disaggregation.peeling import Peeling
from attacks.disaggregation.problem import DisaggregationProblem
from attacks.disaggregation.recovery import Columns
from attacks.disaggregation.subspace import Subspace
from attacks.disaggregation.verdict import Candidates, judge, out_of_reach
from attacks.disaggregation.windows import Windows
from fedsim.progress import Progress, silent
from fedsim.settings import Settings

CHECK_EVERY = 10
PEEL_EVERY = 50
COOLING = (1.0, 0.6, 0.3, 0.1)
"""Factors of the peeling weight that a stalled batch tries in turn."""
BATCH = 48
"""Points below which a batch costs no less: clients that are hard to find get several."""
SETTLED = 1e3
ZERO = 1e-2
"""Squared distance, in single precision, below which a binary column is taken to lie in an exact space."""


class Projection(Settings):
    """Batched projections with peeling; complete where the paper's program is, in seconds.

    `step` is the relaxation of the reflections, `peeling` the weight of the soft measurements (.1 is a
    narrow optimum; 0 switches them off), `patience` the iterations without a new column before the batch
    changes its weight and, after a full cycle, starts anew; `max_iterations` bounds the work.
    """

    name: Literal["projection"] = "projection"
    step: PositiveFloat = 0.5
    peeling: NonNegativeFloat = 0.1
    patience: PositiveInt = 300
    max_iterations: PositiveInt = 4000

    def solve(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        """A column and an outcome for every client; see `Columns`."""
        open_ = ~out_of_reach(problem, subspace)
        found = Candidates.none(problem)
        if open_.any():
            _Search(problem, subspace, self, rng).run(np.flatnonzero(open_), found, progress)
        return judge(problem, subspace, found, solver=self.name)


class _Search:
    """The state of one run; points are rows, in single precision."""

    def __init__(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        settings: Projection,
        rng: np.random.Generator,
    ) -> None:
        windows = problem.windows
        self.windows, self.settings, self.rng = windows, settings, rng
        self.expected = expected_participation(windows)
        self.space = AffineSpace(windows, subspace)
        self.peeling = Peeling(self.space, self.expected)
        self.pool = Pool(windows, attributed=not self.space.cut)
        everyone = subspace.num_clients == windows.clients
        self.cohort_sizes = problem.cohort_sizes if everyone else None
        self.excluded = np.zeros(windows.rounds, dtype=np.float32)

    def run(self, wanted: NDArray[np.intp], found: Candidates, progress: Progress) -> None:
        """Search for the columns of the `wanted` clients and put what turns up into `found`."""
        settings = self.settings
        active = self.filled(wanted[:0], wanted)
        X, binary = self.start(active), BinarySet(self.windows.of(active))
        cooling, last_new = 0, 0
        project, offset = self.peeling.tilted(active, self.pool.columns, 0.0)
        for iteration in range(1, settings.max_iterations + 1):
            Q = binary.nearest(X + self.excluded)
            R = offset + ((2 * Q - X) @ self.space.B) @ project
            X += settings.step * (R - Q)
            if iteration % CHECK_EVERY:
                continue
            distance = self.space.distance(Q, active)
            found.offer(active, Q, distance)
            done = (distance < ZERO) & Q.any(axis=1)
            peel = iteration % PEEL_EVERY == 0
            if done.any():
                if self.pool.add(active[done], Q[done]):
                    last_new = iteration
                    self.excluded = self.exclusions(len(wanted))
                missing = self.pool.without(wanted)
                progress(len(wanted) - len(missing), len(wanted))
                if not len(missing) or self.pool.size == self.space.subspace.rank:
                    break
                on = ~done & np.isin(active, missing)
                active = self.filled(active[on], missing)
                X = np.concatenate((X[on], self.start(active[on.sum() :])))
                binary, peel = BinarySet(self.windows.of(active)), True
            if iteration - last_new >= settings.patience:
                last_new, cooling, peel = iteration, cooling + 1, True
                if cooling % len(COOLING) == 0:
                    X = self.start(active)
            if peel:
                weight = settings.peeling * COOLING[cooling % len(COOLING)]
                project, offset = self.peeling.tilted(active, self.pool.columns, weight)
        owned = np.flatnonzero(self.pool.column >= 0)
        found.columns[owned] = self.pool.columns[self.pool.column[owned]]

    def filled(self, running: NDArray[np.intp], missing: NDArray[np.intp]) -> NDArray[np.intp]:
        """The clients of a batch: those of the points that go on, then of those to start.

        Every missing client has a point, and several if that makes no difference to the work.
        """
        idle = np.setdiff1d(missing, running)
        spare = max(BATCH - len(running) - len(idle), 0)
        return np.concatenate((running, idle, np.resize(missing, spare)))

    def exclusions(self, clients: int) -> NDArray[np.float32]:
        """(rounds,) pushes entries to 0 or 1 where the sizes of the cohorts leave no choice.

        What the columns in the pool leave of a round's cohort is shared among the missing clients: if it
        is nothing, or all of them, that settles the round for each.
        """
        push = np.zeros(self.windows.rounds, dtype=np.float32)
        if self.cohort_sizes is not None:
            left = self.cohort_sizes - self.pool.columns.sum(axis=0, dtype=np.int64)
            push[left <= 0] = -SETTLED
            push[left >= clients - self.pool.size] = SETTLED
        return push

    def start(self, clients: NDArray[np.intp]) -> NDArray[np.float32]:
        """Counts spread evenly over their windows, and a little noise to break ties."""
        noise = self.rng.random((len(clients), self.windows.rounds), dtype=np.float32)
        return self.expected[clients] + np.float32(0.1) * noise


def expected_participation(windows: Windows) -> NDArray[np.float32]:
    """(K, rounds) the chance of taking part by the counts; the overall rate where they are silent."""
    rates = windows.rates()
    known = ~np.isnan(rates)
    rate = rates[known].mean() if known.any() else 0.5
    return np.where(known, rates, rate).astype(np.float32)
