"""FedAvg's local training: from a model and a client's examples to the client's update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedsim.core.errors import UserError
from fedsim.models.normalisation import batch_counters, normalises_by_batch, running_statistics
from fedsim.training.descent import Descent

if TYPE_CHECKING:
    from fedsim.models.architecture import Architecture
    from fedsim.tasks.task import Task
    from fedsim.training.local_work import LocalWork
    from fedsim.training.stacked import Shards, Stack

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Outputs and targets of a batch to the scalar that training minimises."""

_KERNEL_DIM = 4
"""Dimensions of the weights of a two-dimensional convolution: outputs, inputs, height, width."""

WIDE_KERNEL = 256
"""Inputs from which on a kernel is worth arranging: below, kernels are small beside the feature maps."""


def initial_model(model: Architecture, task: Task, rng: np.random.Generator) -> nn.Module:
    """A model with torch's own initialisation, drawn from `rng` without touching the global generator.

    A model that cannot take the task's inputs is a `UserError`.
    """
    model.check(task)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        return model.built(task)


@dataclass(frozen=True)
class Evaluation:
    """A model's figures of merit on test examples: the task's metric, and further ones by name."""

    metric: float
    further: Mapping[str, float]
    loss: float
    """What training minimises, mean over the predictions."""


def evaluate(task: Task, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The task's metric of a model, as it is, on these examples."""
    return evaluated(task, model, inputs, targets).metric


def evaluated(task: Task, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Evaluation:
    """All figures of merit of a model, as it is, on these examples."""
    total, count, loss = 0.0, 0, 0.0
    further: dict[str, float] = {}
    size = task.evaluation_batch
    with torch.inference_mode():
        for x, y in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            outputs = model(x)
            terms = task.metric_terms(outputs, y)
            total += float(terms.sum())
            count += terms.numel()
            loss += float(task.loss(outputs, y)) * terms.numel()
            for name, others in task.further_terms(outputs, y).items():
                further[name] = further.get(name, 0.0) + float(others.sum())
    means = {name: task.further_of(name, each / count) for name, each in further.items()}
    return Evaluation(task.metric_of(total / count), means, loss / count)


class FlatModel:
    """A model whose parameters, and then its running statistics, live in one contiguous vector.

    The federation speaks of models as vectors of length `dim`; loading one is a single copy. With
    `channels_last`, wide kernels of convolutions have memory of their own, in the order in which a CPU reads
    them with the channels of a place side by side. Otherwise every step would arrange them anew. Their part
    of the vector is never touched, so that it takes no memory.
    """

    def __init__(
        self, module: nn.Module, device: torch.device | None = None, *, channels_last: bool = False
    ) -> None:
        self.module = module if device is None else module.to(device)
        self._tensors = [*module.parameters(), *running_statistics(module)]
        self._counters = batch_counters(module)
        size, place = sum(t.numel() for t in self._tensors), self._tensors[0].device
        self.vector = torch.empty(size, dtype=torch.float32, device=place)
        self._has_kernels = False
        for t, piece in zip(self._tensors, self._pieces(self.vector), strict=True):
            if channels_last and t.dim() == _KERNEL_DIM and t.shape[1] >= WIDE_KERNEL:
                t.data = t.data.to(torch.float32).clone(memory_format=torch.channels_last)
                self._has_kernels = True
            else:
                t.data = piece.copy_(t.data)

    @property
    def layer_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors that the vector concatenates."""
        return [tuple(t.shape) for t in self._tensors]

    @property
    def dim(self) -> int:
        """The number of parameters and running statistics."""
        return self.vector.numel()

    def read(self) -> NDArray[np.float32]:
        """A copy of the parameters."""
        parameters = np.empty(self.dim, dtype=np.float32)
        self._write(parameters)
        return parameters

    def write_difference(self, start: NDArray[np.float32], *, out: NDArray[np.float32]) -> None:
        """Write to `out` (dim,) how far the parameters are from `start`."""
        if self._has_kernels:
            self._write(out)
            np.subtract(out, start, out=out)
        else:
            np.subtract(self.vector.cpu().numpy(), start, out=out)

    def gradient_pieces(self, vector: NDArray[np.float32] | None) -> list[torch.Tensor] | None:
        """The entries of a vector (dim,) that belong to each parameter that is trained, in its shape."""
        if vector is None:
            return None
        pieces = self._pieces(torch.from_numpy(vector).to(self.vector.device))
        return [piece for piece, t in zip(pieces, self._tensors, strict=True) if t.requires_grad]

    def load(self, parameters: NDArray[np.float32]) -> None:
        """Overwrite the parameters."""
        # torch takes no memory that is read-only.
        given = torch.from_numpy(np.require(parameters, requirements="W"))
        if self._has_kernels:
            for t, piece in zip(self._tensors, self._pieces(given), strict=True):
                t.data.copy_(piece)
        else:
            self.vector.copy_(given)
        for counter in self._counters:
            counter.zero_()

    def _write(self, to: NDArray[np.float32]) -> None:
        """Write the parameters to a vector (dim,)."""
        if self._has_kernels:
            for t, piece in zip(self._tensors, self._pieces(torch.from_numpy(to)), strict=True):
                piece.copy_(t.data)
        else:
            to[:] = self.vector.cpu().numpy()

    def _pieces(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Views of a vector (dim,), one for each tensor, in its shape."""
        pieces = torch.split(vector, [t.numel() for t in self._tensors])
        return [piece.view(t.shape) for piece, t in zip(pieces, self._tensors, strict=True)]


def examples_used(owned: int, settings: LocalWork) -> int:
    """How many of the examples that a client owns it uses in a round."""
    return max(1, round(settings.data_fraction * owned))


def path_length(owned: int, settings: LocalWork) -> float:
    """The number of steps that a client takes in a round, times their size."""
    steps = settings.local_steps or settings.local_epochs * -(
        -examples_used(owned, settings) // settings.batch_size
    )
    return steps * settings.lr


def check_batches(module: nn.Module, owned: Sequence[NDArray[np.int64]], settings: LocalWork) -> None:
    """A `UserError` if a client would normalise a batch of one example, which has no variance."""
    if not normalises_by_batch(module):
        return
    for client, mine in enumerate(owned):
        used = examples_used(len(mine), settings)
        if used % settings.batch_size == 1 or settings.batch_size == 1:
            raise UserError(
                f"clients.batch_size is {settings.batch_size}: client {client} trains on {used} examples, "
                "which leaves a batch of one, and batch normalisation needs two or more: choose another "
                "batch_size or dataset_size, or a model with group normalisation"
            )


def epochs(owned: int, settings: LocalWork, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The order in which a client goes through its examples in each epoch of a round.

    `data_fraction` of the examples is drawn first, and shuffled for every epoch. A number of steps may end in
    the middle of an epoch.
    """
    drawn = rng.permutation(owned)[: examples_used(owned, settings)]
    if settings.local_steps is None:
        for _ in range(settings.local_epochs):
            yield rng.permutation(drawn)
        return
    left = settings.local_steps * settings.batch_size
    # A last batch that is smaller is a step as well.
    epoch = -(-len(drawn) // settings.batch_size) * settings.batch_size
    while left > 0:
        yield rng.permutation(drawn)[:left]
        left -= epoch


def local_update(
    model: FlatModel,
    start: NDArray[np.float32],
    *,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Loss,
    settings: LocalWork,
    rng: np.random.Generator,
    marks: Sequence[int] = (),
    correction: NDArray[np.float32] | None = None,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Train from `start` on a client's examples; return the model difference, (dim,) float32.

    Each epoch runs in batches, the last of which may be smaller. `model` is scratch space: nothing of one
    client survives into the next call. With `marks`, numbers of epochs in ascending order, it returns the
    difference after each of them, (marks, dim). A `correction` (dim,) is added to the gradient of every step.
    What is returned is written to `out`, (marks, dim) or (1, dim), if that is given.
    """
    updates = np.empty((max(1, len(marks)), model.dim), dtype=np.float32) if out is None else out
    model.load(start)
    model.module.train()
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    descent = Descent(parameters, settings, correction=model.gradient_pieces(correction))
    for number, order in enumerate(epochs(len(targets), settings, rng), start=1):
        for batch in torch.split(torch.from_numpy(order), settings.batch_size):
            batch_loss = loss(model.module(inputs[batch]), targets[batch])
            # One tensor per parameter: collecting them in one vector would write every gradient twice.
            # Without a name, so that they are gone before the next step needs memory for its own.
            descent.step(torch.autograd.grad(batch_loss, parameters, allow_unused=True))
        if number in marks:
            model.write_difference(start, out=updates[marks.index(number)])
    if marks:
        return updates
    model.write_difference(start, out=updates[0])
    only: NDArray[np.float32] = updates[0]
    return only


def local_updates(
    stack: Stack,
    start: torch.Tensor,
    *,
    shards: Shards,
    settings: LocalWork,
    rngs: Sequence[np.random.Generator],
    marks: Sequence[int],
    out: torch.Tensor,
) -> None:
    """The updates of as many clients as the stack has copies, all at once: `out` (clients, marks, dim).

    Each update is the one that `local_update` computes, up to rounding. Without `marks` it is the one after
    all steps, and `out` is (clients, 1, dim).
    """
    with torch.inference_mode():
        stack.restart(start, shards, lr=settings.lr)
        clients = [epochs(shards.size, settings, rng) for rng in rngs]
        for number, orders in enumerate(zip(*clients, strict=True), start=1):
            for batch in torch.split(torch.from_numpy(np.stack(orders)), settings.batch_size, dim=1):
                stack.step(batch)
            if number in marks:
                stack.write_updates(start, out=out[:, marks.index(number)])
        if not marks:
            stack.write_updates(start, out=out[:, 0])
