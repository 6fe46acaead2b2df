"""The steps of a client: gradients to changes of its parameters, as torch.optim does them.

Importing torch.optim takes seconds, and clients need no more than this.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedsim.training.local_work import LocalWork

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's usual settings."""


class Descent:
    """Changes `parameters` in place, from where they stand when it is made.

    In a step, the gradient of the proximal term (FedProx) and a constant `correction` (SCAFFOLD), one tensor
    for each parameter, join the gradient of the loss. Together they are
    clipped to a norm. Weight decay, momentum and Adam follow, as in torch.optim. With `clients`, every
    parameter is (clients, …): one row for each, and each client's gradients are clipped on their own.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        work: LocalWork,
        *,
        clients: int | None = None,
        correction: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self._correction = correction
        self._parameters, self._work, self._clients = parameters, work, clients
        self._begun = [p.detach().clone() for p in parameters] if work.proximal_mu else None
        remembers = work.momentum or work.optimiser == "adam"
        self._first = [torch.zeros_like(p) for p in parameters] if remembers else None
        self._second = [torch.zeros_like(p) for p in parameters] if work.optimiser == "adam" else None
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take one step; a parameter without a gradient stays."""
        self._steps += 1
        gradients = self._clipped(self._corrected(self._with_proximal_term(gradients)))
        for number, gradient in enumerate(gradients):
            if gradient is not None:
                self._move(number, gradient)

    def _move(self, number: int, gradient: torch.Tensor) -> None:
        """Move one parameter along its gradient."""
        work, parameter = self._work, self._parameters[number]
        if work.weight_decay:
            gradient = gradient.add(parameter, alpha=work.weight_decay)
        if self._first is not None and self._second is not None:
            self._adam(parameter, gradient, self._first[number], self._second[number])
            return
        if self._first is not None:
            gradient = self._first[number].mul_(work.momentum).add_(gradient)
        parameter.sub_(gradient, alpha=work.lr)

    def _with_proximal_term(self, gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        if self._begun is None:
            return gradients
        return [
            None if g is None else g.add(p - begun, alpha=self._work.proximal_mu)
            for g, p, begun in zip(gradients, self._parameters, self._begun, strict=True)
        ]

    def _corrected(self, gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        if self._correction is None:
            return gradients
        return [None if g is None else g + c for g, c in zip(gradients, self._correction, strict=True)]

    def _clipped(self, gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """All gradients together, no longer than the norm; without a synchronisation on a device."""
        if self._work.gradient_clip is None:
            return gradients
        rows = self._clients or 1
        lengths = [torch.linalg.vector_norm(g.reshape(rows, -1), dim=1) for g in gradients if g is not None]
        norm = torch.linalg.vector_norm(torch.stack(lengths), dim=0)
        # The constant is the one of torch.nn.utils.clip_grad_norm_.
        factor = (self._work.gradient_clip / (norm + 1e-6)).clamp(max=1.0)
        return [None if g is None else (g.reshape(rows, -1) * factor[:, None]).view_as(g) for g in gradients]

    def _adam(
        self, parameter: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> None:
        first.mul_(BETA_1).add_(gradient, alpha=1 - BETA_1)
        second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        correction = (1 - BETA_2**self._steps) ** 0.5
        rate = self._work.lr / (1 - BETA_1**self._steps)
        parameter.addcdiv_(first, second.sqrt().div_(correction).add_(EPSILON), value=-rate)
