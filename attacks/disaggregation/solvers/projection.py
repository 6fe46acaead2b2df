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
from attacks.disaggregation.binary import BinarySet
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
            _Search(problem.windows, subspace, self, rng).run(np.flatnonzero(open_), found, progress)
        return judge(problem, subspace, found, solver=self.name)


class _Search:
    """The state of one run; points are rows, in single precision."""

    def __init__(
        self, windows: Windows, subspace: Subspace, settings: Projection, rng: np.random.Generator
    ) -> None:
        self.windows, self.subspace, self.settings, self.rng = windows, subspace, settings, rng
        rates = windows.rates()
        known = ~np.isnan(rates)
        self.rate = float(np.clip(rates[known].mean(), 0.01, 0.99)) if known.any() else 0.5
        self.expected = np.where(known, rates, self.rate).astype(np.float32)
        self.space = AffineSpace(windows, subspace)
        self.B = self.space.B
        self.Bt = np.ascontiguousarray(self.B.T)

    def run(self, active: NDArray[np.intp], found: Candidates, progress: Progress) -> None:
        """Search for the columns of the `active` clients and put what turns up into `found`."""
        settings, total = self.settings, len(active)
        X, offset, binary = self.start(active), self.space.offsets(active), BinarySet(self.windows.of(active))
        project, cooling, last_new = self.Bt, 0, 0
        for iteration in range(1, settings.max_iterations + 1):
            Q = binary.nearest(X)
            R = offset + ((2 * Q - X) @ self.B) @ project
            X += settings.step * (R - Q)
            if iteration % CHECK_EVERY:
                continue
            distance = self.space.distance(Q, active)
            found.offer(active, Q, distance)
            done = distance < ZERO
            if done.any():
                last_new = iteration
                X, active = X[~done], active[~done]
                offset = offset[~done] if len(offset) == len(done) else offset
                binary = BinarySet(self.windows.of(active))
                progress(total - len(active), total)
            if not len(active):
                return
            stalled = iteration - last_new >= settings.patience
            if stalled:
                last_new, cooling = iteration, cooling + 1
                if cooling % len(COOLING) == 0:
                    X = self.start(active)
            if stalled or iteration % PEEL_EVERY == 0:
                weight = settings.peeling * COOLING[cooling % len(COOLING)]
                project, offset = self.peel(active, found.columns[found.distance < ZERO], weight)

    def start(self, clients: NDArray[np.intp]) -> NDArray[np.float32]:
        """Counts spread evenly over their windows, and a little noise to break ties."""
        noise = self.rng.random((len(clients), self.windows.rounds), dtype=np.float32)
        return self.expected[clients] + np.float32(0.1) * noise

    def peel(
        self, clients: NDArray[np.intp], accepted: NDArray[np.uint8], weight: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The projection M Bᵀ and the offsets, given the accepted columns as soft measurements."""
        offset = self.space.offsets(clients)
        if weight == 0 or not len(accepted):
            return self.Bt, offset
        rounds = self.windows.rounds
        strength = np.float32(weight / (rounds * (self.rate * (1 - self.rate)) ** 2))
        P = accepted.astype(np.float32)
        T = P @ self.B
        M = np.linalg.inv(np.eye(T.shape[1], dtype=np.float32) + strength * (T.T @ T))
        project = np.asarray(M @ self.Bt, dtype=np.float32)
        overlap = self.expected[clients] @ P.T - offset @ P.T
        return project, offset + strength * ((overlap @ T) @ project)
