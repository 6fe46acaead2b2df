"""Deep leakage from gradients (Zhu, Liu, Han 2019): images and labels with the observed gradient."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from attacks.inference.attack import Watch
from attacks.inference.evidence import Evidence
from attacks.inference.inversion.inversion import Inversion, as_pixels, share_of
from attacks.inference.knowledge import Knowledge

_MATCHED = 1e-12
"""Relative squared distance of gradients below which the gradient counts as matched."""


class Dlg(Inversion):
    """Joint optimisation of images and soft labels: L-BFGS on the distance of gradients, with restarts.

    It needs full gradients, that is one step on all images. It works best with a smooth activation, because
    the gradient of a ReLU network jumps. It uses double precision, because L-BFGS stalls when rounding hides
    the slope.
    """

    needs_full_gradients: ClassVar[bool] = True
    preview_every: ClassVar[int] = 20

    name: Literal["dlg"] = "dlg"
    iterations: PositiveInt = 300
    restarts: PositiveInt = 3
    """Most starts; a further start is made only if the gradient is not matched yet."""

    def check(self, knowledge: Knowledge) -> None:
        """Also, the device must know double precision."""
        super().check(knowledge)
        if knowledge.device == "mps":
            raise self.unmet("double precision, which mps does not have: expected engine.device = 'cpu'")

    def invert(
        self, evidence: Evidence, row: int, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch
    ) -> tuple[NDArray[np.float32], int]:
        """All images behind the row, of every client in the sum."""
        objective = _Objective(evidence, row, knowledge)
        best, smallest, spent = np.zeros(objective.size), np.inf, 0
        for attempt in range(self.restarts):
            point, distance, steps = self._descend(
                objective, rng.normal(0, 0.5, objective.size), share_of(watch, attempt, self.restarts)
            )
            spent += steps
            if distance < smallest:
                best, smallest = point, distance
            if smallest < _MATCHED:
                break
        return objective.inputs(best), spent

    def _descend(
        self, objective: _Objective, begin: NDArray[np.float64], watch: Watch
    ) -> tuple[NDArray[np.float64], float, int]:
        """L-BFGS from one start: the end point, the distance there, and the number of iterations."""
        from scipy.optimize import OptimizeResult, minimize

        done = 0

        def look(intermediate_result: OptimizeResult) -> None:
            nonlocal done
            done += 1
            if done % self.preview_every == 0:
                watch(done, self.iterations, as_pixels(objective.inputs(intermediate_result.x)))
            if intermediate_result.fun < _MATCHED:
                raise StopIteration

        found = minimize(
            objective,
            begin,
            jac=True,
            method="L-BFGS-B",
            callback=look,
            options={
                "maxiter": self.iterations, "maxfun": 3 * self.iterations, "maxcor": 50, "ftol": 0, "gtol": 0,
            },
        )  # fmt: skip
        return found.x, float(found.fun), int(found.nit)


class _Objective:
    """The squared distance to the observed gradient, relative to its squared length, and its derivative."""

    def __init__(self, evidence: Evidence, row: int, knowledge: Knowledge) -> None:
        import torch

        self._knowledge = knowledge
        self._start = knowledge.tensors(evidence.starts[row])
        # After one step, the update is minus the gradient times the learning rate.
        self._target = knowledge.tensors(evidence.updates[row], torch.float64)
        squares = (u.astype(np.float64) ** 2 for u in knowledge.layers(evidence.updates[row]))
        self._length = sum(float(each.sum()) for each in squares)
        self.images = evidence.clients * knowledge.work.examples_per_round
        self._pixels = self.images * int(np.prod(knowledge.task.input_shape))
        self.size = self._pixels + self.images * knowledge.task.outputs

    def inputs(self, point: NDArray[np.float64]) -> NDArray[np.float32]:
        """The images among the variables."""
        images = point[: self._pixels].reshape(self.images, *self._knowledge.task.input_shape)
        return images.astype(np.float32)

    def __call__(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        import torch

        from attacks.inference.inversion.local_steps import simulated_update

        knowledge = self._knowledge
        variables = torch.from_numpy(point.copy()).to(knowledge.device).requires_grad_()
        images = variables[: self._pixels].reshape(self.images, *knowledge.task.input_shape)
        labels = variables[self._pixels :].reshape(self.images, knowledge.task.outputs).softmax(dim=1)
        update = simulated_update(
            knowledge.module_on_device,
            self._start,
            images,
            labels,
            work=knowledge.work,
            batches=[torch.arange(self.images, device=variables.device)],
        )
        pairs = zip(update, self._target, strict=True)
        distance = torch.stack([((u - t) ** 2).sum() for u, t in pairs]).sum() / self._length
        (slope,) = torch.autograd.grad(distance, variables)
        return float(distance.detach()), slope.cpu().numpy()
