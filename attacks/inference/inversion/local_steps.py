"""A client's local training as a differentiable function, from images to their update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

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
    velocity = [torch.zeros_like(w) for w in weights]
    begun = weights
    for batch in batches:
        logits = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), images[batch])
        loss = nn.functional.cross_entropy(logits, labels[batch])
        gradient = torch.autograd.grad(loss, weights, create_graph=True)
        velocity = [work.momentum * v + g for v, g in zip(velocity, gradient, strict=True)]
        weights = [w - work.lr * v for w, v in zip(weights, velocity, strict=True)]
    return [end - w for end, w in zip(weights, begun, strict=True)]
