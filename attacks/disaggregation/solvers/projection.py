"""All columns at once, by reflections between the column space and the binary columns.

Two sets are easy to project on: the column space of the aggregates, cut by the counts (one matrix
product), and the 0/1 columns with the right counts (sorting inside windows). A relaxed reflection
iteration (Douglas–Rachford) between them finds a point of both, for all clients in one product per step.

Accepted columns help to find the others (*peeling*): clients take part independently, so the counts nearly
determine the overlap of a missing column with an accepted one. That is a soft linear measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from attacks.disaggregation.columns.attribution import Pool
from attacks.disaggregation.columns.enumeration import Enumeration
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.noise.rivals import Rivals
from attacks.disaggregation.proof.verdict import Candidates, judge, resolved
from attacks.disaggregation.recovery import Columns
from attacks.disaggregation.reflections.peeling import Peeling
from attacks.disaggregation.reflections.points import Points, joined
from attacks.disaggregation.solvers.solver import AbstractSolver
from attacks.disaggregation.space.affine import AffineSpace
from attacks.disaggregation.space.subspace import row_blocks
from attacks.disaggregation.workers import BlockWorkers, Threads
from fedsim.core.progress import Progress, silent

BLOCK_ITERATIONS = 50
"""First iterations, in which blocks of clients work independently of each other."""
OFFER_EVERY = 10
PEEL_EVERY = 50
PEELING_FACTORS = (1.0, 0.6, 0.3, 0.1)
"""Factors of the peeling weight, which a stalled batch tries in turn."""
LEAST_BATCH_POINTS = 48
"""Least points of a batch. A smaller batch costs no less, so clients that are hard to find get several."""
SETTLED_PUSH = 1e3
"""Added to a point's entry to put it above (or below) every other entry of its window."""
FRUITLESS_OPERATIONS = 3e11
"""Floating-point operations without a new column after which a small batch gives up."""
FRUITLESS_CYCLES = 10
"""Cycles of weights without a new column after which any batch gives up."""
INSIDE_SQUARED = 1e-2
"""Squared distance, in single precision, below which a binary column counts as inside an exact space."""


class Projection(AbstractSolver):
    """Batched projections with peeling; finds all columns where the paper's program does, in seconds.

    `step` is the relaxation of the reflections. `peeling` is the weight of the soft measurements (.1 is a
    narrow optimum; 0 switches them off). After `patience` iterations without a new column the batch changes
    its weight, and after a full cycle it restarts. `max_iterations` bounds the work; a search that finds
    nothing new gives up long before. With `prove`, certificates of uniqueness are sought for the columns
    found, which takes about as long as finding them. For clients without a certificate and with few ones all
    possible columns are enumerated. Without `prove` no alternatives are considered, and confidence is .99 for
    all. `workers` do the first iterations, in blocks of clients, and the proofs; the result does not depend
    on them.
    """

    name: Literal["projection"] = "projection"
    step: PositiveFloat = 0.5
    peeling: NonNegativeFloat = 0.1
    patience: PositiveInt = 300
    max_iterations: PositiveInt = 60_000
    prove: bool = True
    workers: BlockWorkers = Threads()

    needs_counts: ClassVar[bool] = True
    models_noise: ClassVar[bool] = False
    can_prove: ClassVar[bool] = True

    def solve(self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent) -> Columns:
        """A column and an outcome for every client."""
        found = self.search(instance, rng=rng, progress=progress)
        return judge(instance, found, solver=self.name, prove=self.prove, workers=self.workers)

    def search(
        self, instance: Instance, *, rng: np.random.Generator, progress: Progress = silent
    ) -> Candidates:
        """The columns without the verdict, for a solver that goes on from here."""
        found = Candidates.none(instance)
        wanted = instance.searchable
        if len(wanted):
            _Search(instance, self, rng).run(wanted, found, progress)
        if instance.exact and self.prove:
            enumeration = Enumeration(instance)
            for client in wanted[~resolved(instance, found)[wanted]].tolist():
                listed = enumeration.columns(client)
                if listed is not None and len(listed):
                    found.columns[client] = listed[0]
        if not instance.subspace.exact:
            rivals = Rivals(instance.windows, instance.subspace)
            for client in wanted.tolist():
                found.columns[client] = rivals.polished(found.columns[client], client)
        return found


class _Search:
    """The state of one run; points are rows, in single precision."""

    def __init__(self, instance: Instance, settings: Projection, rng: np.random.Generator) -> None:
        windows, subspace = instance.windows, instance.subspace
        self.windows, self.settings, self.rng = windows, settings, rng
        self.space = AffineSpace(windows, subspace)
        self.peeling = Peeling(self.space, instance.expected.astype(np.float32))
        self.pool = Pool(windows, subspace, attributed=not self.space.cut)
        self.cohort_sizes = instance.problem.cohort_sizes if instance.covers_everyone else None
        self.excluded = np.zeros(windows.rounds, dtype=np.float32)

    def run(self, wanted: NDArray[np.intp], found: Candidates, progress: Progress) -> None:
        """Search for the columns of the `wanted` clients and put them into `found`."""
        settings, peeling = self.settings, self.peeling
        points = self.alone(wanted, found, progress)
        last_new = last_change = begin = min(BLOCK_ITERATIONS, settings.max_iterations)
        cooling = 0
        for iteration in range(begin, settings.max_iterations):
            if not self.left(wanted):
                break
            peel = iteration % PEEL_EVERY == 0
            if iteration - last_change >= settings.patience:
                last_change, cooling, peel = iteration, cooling + 1, True
                if cooling % len(PEELING_FACTORS) == 0:
                    points = self.batch(self.pool.without(wanted), wanted)
            if peel:
                if self.pool.size:
                    peeling.tilt(
                        self.pool.columns, settings.peeling * PEELING_FACTORS[cooling % len(PEELING_FACTORS)]
                    )
                points.renew(peeling)
            # A sum of two columns in the pool excludes its parts: every other phase searches without it.
            Q, distance = points.step(peeling, 0.0 if cooling % 2 else self.excluded, settings.step)
            done = (distance < INSIDE_SQUARED) & Q.any(axis=1)
            nearer = iteration % OFFER_EVERY == 0 and found.offer(points.clients, Q, distance)
            if done.any():
                if self.take(points.clients[done], Q[done]):
                    last_new = last_change = iteration
                missing = self.pool.without(wanted)
                progress(len(wanted) - len(missing), len(wanted))
                points = self.batch(missing, wanted, points.of(~done & np.isin(points.clients, missing)))
            elif nearer and not self.space.subspace.exact:
                last_new = iteration  # under noise no column is ever inside: a nearer one counts as new
            if iteration - last_new >= self.endurance(len(points)):
                break
        owned = np.flatnonzero(self.pool.column >= 0)
        found.columns[owned] = self.pool.columns[self.pool.column[owned]]

    def alone(self, wanted: NDArray[np.intp], found: Candidates, progress: Progress) -> Points:
        """The first iterations, block by block; return the points that are still searching as one batch."""
        clients = self.with_spare(wanted, wanted)
        blocks = [clients[block] for block in row_blocks(len(clients))]
        tasks = list(zip(blocks, self.rng.spawn(len(blocks)), strict=True))
        shared = (self.peeling, self.settings.step, min(BLOCK_ITERATIONS, self.settings.max_iterations))
        searching: list[Points] = []
        for block in self.settings.workers.map(_search_block, shared, tasks):
            found.offer(block.searching.clients, block.columns, block.distance)
            if len(block.done):
                self.take(block.done, block.done_columns)
            searching.append(block.searching)
            progress(len(wanted) - len(self.pool.without(wanted)), len(wanted))
        points = joined(searching, self.peeling)
        missing = self.pool.without(wanted)
        return self.batch(missing, wanted, points.of(np.isin(points.clients, missing)))

    def take(self, clients: NDArray[np.intp], columns: NDArray[np.generic]) -> bool:
        """Put columns into the pool; return whether any is new."""
        new = self.pool.add(clients, columns)
        if new:
            self.excluded = self.exclusions(self.windows.clients)
        return new

    def left(self, wanted: NDArray[np.intp]) -> bool:
        """Whether a column may still be found."""
        return bool(len(self.pool.without(wanted))) and self.pool.size < self.space.subspace.rank

    def batch(
        self, missing: NDArray[np.intp], wanted: NDArray[np.intp], running: Points | None = None
    ) -> Points:
        """Points for every `missing` client: those `running` continue, the others start."""
        on = running.clients if running is not None else missing[:0]
        clients = self.with_spare(np.setdiff1d(missing, on), wanted, len(on))
        if running is not None and not len(clients):
            return running
        fresh = Points.start(clients, self.peeling, self.rng)
        return fresh if running is None else joined((running, fresh), self.peeling)

    def with_spare(self, idle: NDArray[np.intp], wanted: NDArray[np.intp], on: int = 0) -> NDArray[np.intp]:
        """The `idle` clients, and some of them again.

        A small batch costs no less than LEAST_BATCH_POINTS points, so the spare points go to clients that are
        hard to find. If columns are attributed afterwards, any of the `wanted` clients may have a missing
        one.
        """
        hard = wanted if self.pool.attributed else self.pool.without(wanted)
        spare = max(LEAST_BATCH_POINTS - on - len(idle), 0) if len(hard) else 0
        return np.concatenate((idle, self.rng.choice(hard, spare)))

    def endurance(self, points: int) -> int:
        """Iterations without a new column after which to give up: more of them where they are cheap."""
        work = 4 * max(points, 1) * self.windows.rounds * max(self.space.B.shape[1], 1)
        patience = self.settings.patience
        if not self.space.subspace.exact:
            return patience
        return int(
            np.clip(FRUITLESS_OPERATIONS / work, patience, FRUITLESS_CYCLES * patience * len(PEELING_FACTORS))
        )

    def exclusions(self, clients: int) -> NDArray[np.float32]:
        """(rounds,) pushes entries to 0 or 1 where the sizes of the cohorts leave no choice.

        The rest of a round's cohort, without the columns in the pool, consists of missing clients. If it is
        empty, or all of them, that settles the round for each.
        """
        push = np.zeros(self.windows.rounds, dtype=np.float32)
        if self.cohort_sizes is not None:
            left = self.cohort_sizes - self.pool.columns.sum(axis=0, dtype=np.int64)
            if left.min() >= 0:
                push[left == 0] = -SETTLED_PUSH
                push[left >= clients - self.pool.size] = SETTLED_PUSH
        return push


@dataclass(frozen=True, eq=False)
class _Block:
    """The result of a block: the clients `done` (d,) have `done_columns` (d, rounds), others are `searching`.

    `columns` and `distance` are the last binary columns of the searching points.
    """

    done: NDArray[np.intp]
    done_columns: NDArray[np.uint8]
    searching: Points
    columns: NDArray[np.uint8]
    distance: NDArray[np.float64]


def _search_block(
    shared: tuple[Peeling, float, int], block: tuple[NDArray[np.intp], np.random.Generator]
) -> _Block:
    """Reflect until a block's columns are found, or until the iterations are over."""
    (peeling, step, iterations), (clients, rng) = shared, block
    points = Points.start(clients, peeling, rng)
    done, found = [clients[:0]], [np.zeros((0, points.X.shape[1]), dtype=np.uint8)]
    Q, distance = points.X, np.full(len(points), np.inf)
    for _ in range(iterations):
        Q, distance = points.step(peeling, 0.0, step)
        right = (distance < INSIDE_SQUARED) & Q.any(axis=1)
        if right.any():
            done.append(points.clients[right])
            found.append(Q[right].astype(np.uint8))
            points, Q, distance = points.of(~right), Q[~right], distance[~right]
        if not len(points):
            break
    return _Block(np.concatenate(done), np.concatenate(found), points, Q.astype(np.uint8), distance)
