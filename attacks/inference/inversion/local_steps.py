"""A client's local training as a differentiable function, from images to their update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedsim.training.descent import BETA_1, BETA_2, EPSILON
from fedsim.training.local_work import LocalWork

Tensors = Sequence[torch.Tensor]


def simulated_update(
    module: nn.Module,
    start: Tensors,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    work: LocalWork,
    batches: Iterable[torch.Tensor],
) -> list[torch.Tensor]:
    """What `local_training.local_update` returns for these batches, layer by layer, with its graph.

    `start` are the parameters that training begins with, in the order of the module's own; `images` are
    inputs, `labels` are classes (n,) or probabilities of classes (n, classes); `batches` are the positions
    of the images of each step, whole epochs one after the other.
    """
    names = [name for name, _ in module.named_parameters()]
    weights = [w.detach().to(images.dtype).requires_grad_() for w in start]
    begun, descent = weights, _Descent(weights, work)
    for batch in batches:
        # torch's fused attention cannot be differentiated twice.
        with sdpa_kernel(SDPBackend.MATH):
            logits = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), images[batch])
        loss = nn.functional.cross_entropy(logits, labels[batch])
        gradient = torch.autograd.grad(loss, weights, create_graph=True)
        weights = descent.step(weights, gradient)
    return [end - w for end, w in zip(weights, begun, strict=True)]


class _Descent:
    """The steps of `fedsim.training.descent.Descent`, out of place, so that they keep their graph."""

    def __init__(self, begun: Tensors, work: LocalWork) -> None:
        self._begun, self._work, self._steps = begun, work, 0
        self._first: Tensors = [torch.zeros_like(w) for w in begun]
        self._second: Tensors = [torch.zeros_like(w) for w in begun]

    def step(self, weights: Tensors, gradients: Tensors) -> list[torch.Tensor]:
        """The weights after one more step."""
        work = self._work
        self._steps += 1
        if work.proximal_mu:
            away = zip(gradients, weights, self._begun, strict=True)
            gradients = [g + work.proximal_mu * (w - begun) for g, w, begun in away]
        if work.gradient_clip is not None:
            norm = torch.stack([(g**2).sum() for g in gradients]).sum().sqrt()
            factor = (work.gradient_clip / (norm + 1e-6)).clamp(max=1.0)
            gradients = [g * factor for g in gradients]
        if work.weight_decay:
            gradients = [g + work.weight_decay * w for g, w in zip(gradients, weights, strict=True)]
        if work.optimiser == "adam":
            gradients = self._adam(gradients)
        else:
            gradients = [work.momentum * v + g for v, g in zip(self._first, gradients, strict=True)]
            self._first = gradients
        return [w - work.lr * g for w, g in zip(weights, gradients, strict=True)]

    def _adam(self, gradients: Tensors) -> list[torch.Tensor]:
        """The directions of Adam; the root keeps away from zero, where it has no derivative."""
        self._first = [BETA_1 * m + (1 - BETA_1) * g for m, g in zip(self._first, gradients, strict=True)]
        self._second = [
            BETA_2 * v + (1 - BETA_2) * g**2 for v, g in zip(self._second, gradients, strict=True)
        ]
        first, second = 1 - BETA_1**self._steps, 1 - BETA_2**self._steps
        pairs = zip(self._first, self._second, strict=True)
        return [(m / first) / ((v / second + 1e-30).sqrt() + EPSILON) for m, v in pairs]
