"""All columns at once, by reflections between the column space and the binary columns.

Two sets are easy to project on: the column space of the aggregates, cut by the counts (one matrix
product), and the 0/1 columns with the right counts (sorting inside windows). A relaxed reflection
iteration (Douglas–Rachford) between them finds a point of both, for all clients in one product per step.

Accepted columns help to find the others (*peeling*): clients take part independently, so the overlap of a
wanted column with a known one is nearly given by the counts, a soft linear measurement of the former.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from attacks.disaggregation.rivals import Rivals
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
"""Pushes a point's entry beyond every other of its window."""
ENDURANCE = 3e11
"""Floating-point operations without a new column after which even a small batch gives up."""
CYCLES = 10
"""Full cycles of weights without a new column after which any batch gives up."""
ZERO = 1e-2
"""Squared distance, in single precision, below which a binary column is taken to lie in an exact space."""


class Projection(Settings):
    """Batched projections with peeling; complete where the paper's program is, in seconds.

    `step` is the relaxation of the reflections, `peeling` the weight of the soft measurements (.1 is a
    narrow optimum; 0 switches them off), `patience` the iterations without a new column before the batch
    changes its weight and, after a full cycle, starts anew; `max_iterations` bounds the work, though a
    search that finds nothing new gives up long before. With `prove`, certificates of uniqueness are sought
    for the columns found, which takes about as long as finding them.
    """

    name: Literal["projection"] = "projection"
    step: PositiveFloat = 0.5
    peeling: NonNegativeFloat = 0.1
    patience: PositiveInt = 300
    max_iterations: PositiveInt = 60_000
    prove: bool = True

    def solve(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Columns:
        """A column and an outcome for every client; see `Columns`."""
        found = self.search(problem, subspace, rng=rng, progress=progress)
        return judge(problem, subspace, found, solver=self.name, prove=self.prove)

    def search(
        self,
        problem: DisaggregationProblem,
        subspace: Subspace,
        *,
        rng: np.random.Generator,
        progress: Progress = silent,
    ) -> Candidates:
        """The columns without the verdict, for a solver that goes on from here."""
        found = Candidates.none(problem)
        wanted = np.flatnonzero(~out_of_reach(problem, subspace))
        if len(wanted):
            _Search(problem, subspace, self, rng).run(wanted, found, progress)
        if not subspace.exact:
            rivals = Rivals(problem.windows, subspace)
            for client in wanted.tolist():
                found.columns[client] = rivals.polished(found.columns[client], client)
        return found


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
        self.pool = Pool(windows, subspace, attributed=not self.space.cut)
        everyone = subspace.num_clients == windows.clients
        self.cohort_sizes = problem.cohort_sizes if everyone else None
        self.excluded = np.zeros(windows.rounds, dtype=np.float32)

    def run(self, wanted: NDArray[np.intp], found: Candidates, progress: Progress) -> None:
        """Search for the columns of the `wanted` clients and put what turns up into `found`."""
        settings, peeling = self.settings, self.peeling
        points = self.batch(wanted, wanted)
        last_new = last_change = cooling = 0
        for iteration in range(1, settings.max_iterations + 1):
            # A sum of two columns in the pool shuts out its parts: every other phase searches without.
            Q = points.binary.nearest(points.X if cooling % 2 else points.X + self.excluded)
            R = points.offset + ((2 * Q - points.X) @ self.space.B) @ peeling.project
            points.X += settings.step * (R - Q)
            if iteration % CHECK_EVERY:
                continue
            distance = self.space.distance(Q, points.clients)
            nearer = found.offer(points.clients, Q, distance)
            done = (distance < ZERO) & Q.any(axis=1)
            if done.any():
                if self.pool.add(points.clients[done], Q[done]):
                    last_new = last_change = iteration
                    self.excluded = self.exclusions(len(wanted))
                missing = self.pool.without(wanted)
                progress(len(wanted) - len(missing), len(wanted))
                if not len(missing) or self.pool.size == self.space.subspace.rank:
                    break
                points = self.batch(missing, wanted, points.of(~done & np.isin(points.clients, missing)))
            elif nearer and not self.space.subspace.exact:
                last_new = iteration  # under noise nothing is ever done: nearer is as good as new
            if iteration - last_new >= self.endurance(len(points.X)):
                break
            peel = iteration % PEEL_EVERY == 0
            if iteration - last_change >= settings.patience:
                last_change, cooling, peel = iteration, cooling + 1, True
                if cooling % len(COOLING) == 0:
                    points = self.batch(self.pool.without(wanted), wanted)
            if peel and self.pool.size:
                peeling.tilt(self.pool.columns, settings.peeling * COOLING[cooling % len(COOLING)])
                points.offset = peeling.offsets(points.clients)
        owned = np.flatnonzero(self.pool.column >= 0)
        found.columns[owned] = self.pool.columns[self.pool.column[owned]]

    def batch(
        self, missing: NDArray[np.intp], wanted: NDArray[np.intp], running: _Points | None = None
    ) -> _Points:
        """Points for every `missing` client: those `running` go on, the others start.

        A small batch costs no less than one of BATCH points, so the rest go to clients that are hard to
        find; if columns are yet to be attributed, a missing one may be anybody's among the `wanted`.
        """
        on = running.clients if running is not None else missing[:0]
        idle = np.setdiff1d(missing, on)
        spare = max(BATCH - len(on) - len(idle), 0)
        hard = self.rng.choice(wanted if self.pool.attributed else missing, spare)
        clients = np.concatenate((idle, hard))
        noise = self.rng.random((len(clients), self.windows.rounds), dtype=np.float32)
        X = self.expected[clients] + np.float32(0.1) * noise
        offset = self.peeling.offsets(clients)
        if running is not None:
            clients, X = np.concatenate((on, clients)), np.concatenate((running.X, X))
            offset = np.concatenate((running.offset, offset))
        return _Points(clients, X, offset, BinarySet(self.windows.of(clients)))

    def endurance(self, points: int) -> int:
        """Iterations without a new column after which to give up: more of them where they are cheap."""
        work = 4 * points * self.windows.rounds * max(self.space.B.shape[1], 1)
        patience = self.settings.patience
        if not self.space.subspace.exact:
            return patience
        return int(np.clip(ENDURANCE / work, patience, CYCLES * patience * len(COOLING)))

    def exclusions(self, clients: int) -> NDArray[np.float32]:
        """(rounds,) pushes entries to 0 or 1 where the sizes of the cohorts leave no choice.

        What the columns in the pool leave of a round's cohort is shared among the missing clients: if it
        is nothing, or all of them, that settles the round for each.
        """
        push = np.zeros(self.windows.rounds, dtype=np.float32)
        if self.cohort_sizes is not None:
            left = self.cohort_sizes - self.pool.columns.sum(axis=0, dtype=np.int64)
            if left.min() >= 0:
                push[left == 0] = -SETTLED
                push[left >= clients - self.pool.size] = SETTLED
        return push


@dataclass(eq=False)
class _Points:
    """A batch: `clients` (n,) whose column each point seeks, `X` (n, rounds), `offset` (n, rounds)."""

    clients: NDArray[np.intp]
    X: NDArray[np.float32]
    offset: NDArray[np.float32]
    binary: BinarySet

    def of(self, chosen: NDArray[np.bool_]) -> _Points:
        """Some of the points; their `binary` is for the batch that takes them to renew."""
        return _Points(self.clients[chosen], self.X[chosen], self.offset[chosen], self.binary)


def expected_participation(windows: Windows) -> NDArray[np.float32]:
    """(K, rounds) the chance of taking part by the counts; the overall rate where they are silent."""
    rates = windows.rates()
    known = ~np.isnan(rates)
    rate = rates[known].mean() if known.any() else 0.5
    return np.where(known, rates, rate).astype(np.float32)
