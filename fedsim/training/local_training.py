"""FedAvg's local training: from a model and a client's images to the client's update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedsim.tasks.pixels import scaled_

if TYPE_CHECKING:
    from fedsim.models import Model
    from fedsim.training.local_work import LocalWork
    from fedsim.training.stacked import Holdings, Stack


def initial_model(
    model: Model, image_shape: tuple[int, int, int], classes: int, rng: np.random.Generator
) -> nn.Module:
    """A model with torch's own initialisation, drawn from `rng` without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        return model.build(image_shape, classes)


def as_input(images: NDArray[np.uint8]) -> torch.Tensor:
    """(n, height, width, 3) bytes as the network's input: (n, 3, height, width) float32 in [-1, 1]."""
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return scaled_(pixels.to(torch.float32))


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of images whose largest logit is at their label."""
    with torch.inference_mode():
        hits = [
            (model(x).argmax(1) == y).sum().item()
            for x, y in zip(torch.split(images, 500), torch.split(labels, 500), strict=True)
        ]
    return float(sum(hits) / len(labels))


class FlatModel:
    """A model whose parameters live in one contiguous vector.

    The federation speaks of models as vectors of length `dim`; loading one is a single copy.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = list(module.parameters())
        self.vector = torch.cat([p.detach().reshape(-1) for p in parameters]).to(torch.float32)
        begin = 0
        for p in parameters:
            end = begin + p.numel()
            p.data = self.vector[begin:end].view_as(p)
            begin = end

    @property
    def layer_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors that the vector strings together."""
        return [tuple(p.shape) for p in self.module.parameters()]

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.vector.numel()

    def read(self) -> NDArray[np.float32]:
        """A copy of the parameters."""
        copy: NDArray[np.float32] = self.vector.numpy().copy()
        return copy

    def load(self, parameters: NDArray[np.float32]) -> None:
        """Overwrite the parameters."""
        self.vector.numpy()[:] = parameters


def images_used(owned: int, settings: LocalWork) -> int:
    """How many of its images a client uses in a round."""
    return max(1, round(settings.data_fraction * owned))


def epochs(owned: int, settings: LocalWork, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The order in which a client goes through its images in each epoch of a round.

    `data_fraction` of the images is drawn first, and shuffled for every epoch.
    """
    drawn = rng.permutation(owned)[: images_used(owned, settings)]
    for _ in range(settings.local_epochs):
        yield rng.permutation(drawn)


def local_update(
    model: FlatModel,
    start: NDArray[np.float32],
    *,
    images: torch.Tensor,
    labels: torch.Tensor,
    settings: LocalWork,
    rng: np.random.Generator,
    marks: Sequence[int] = (),
) -> NDArray[np.float32]:
    """Train from `start` on a client's images; return the model difference, (dim,) float32.

    Runs through the `epochs` in batches, the last of which may be smaller. `model` is scratch space: nothing
    of one client survives into the next call. With `marks`, numbers of epochs in ascending order, it returns
    the difference after each of them, (marks, dim).
    """
    model.load(start)
    model.module.train()
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    velocities = [torch.zeros_like(p) for p in parameters] if settings.momentum else None
    passed = []
    for number, order in enumerate(epochs(len(labels), settings, rng), start=1):
        for batch in torch.split(torch.from_numpy(order), settings.batch_size):
            loss = nn.functional.cross_entropy(model.module(images[batch]), labels[batch])
            # Gradients come as they are made: to collect them in one vector is to write them twice.
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            _descend(parameters, gradients, velocities, settings)
        if number in marks:
            passed.append(model.read() - start)
    return np.stack(passed) if marks else model.read() - start


def _descend(
    parameters: Sequence[nn.Parameter],
    gradients: Sequence[torch.Tensor | None],
    velocities: Sequence[torch.Tensor] | None,
    settings: LocalWork,
) -> None:
    """A step as torch.optim.SGD takes it; that class imports torch's compiler, which takes seconds."""
    with torch.no_grad():
        for place, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if gradient is not None:
                step = velocities[place].mul_(settings.momentum).add_(gradient) if velocities else gradient
                parameter.sub_(step, alpha=settings.lr)


def local_updates(
    stack: Stack,
    start: torch.Tensor,
    *,
    owned: Holdings,
    settings: LocalWork,
    rngs: Sequence[np.random.Generator],
    marks: Sequence[int],
    out: torch.Tensor,
) -> None:
    """The same for as many clients as the stack has copies, all at once: `out` (clients, marks, dim).

    A client's update is what `local_update` computes, up to rounding.
    """
    with torch.inference_mode():
        stack.restart(start, owned)
        clients = [epochs(owned.size, settings, rng) for rng in rngs]
        for number, orders in enumerate(zip(*clients, strict=True), start=1):
            for batch in torch.split(torch.from_numpy(np.stack(orders)), settings.batch_size, dim=1):
                stack.step(batch)
            if number in marks:
                stack.progress(start, out=out[:, marks.index(number)])
