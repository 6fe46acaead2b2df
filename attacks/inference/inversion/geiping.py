"""Inverting gradients (Geiping, Bauermeister, Dröge, Moeller 2020), with a client's local steps unrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from attacks.inference.attack import Watch
from attacks.inference.evidence import Evidence
from attacks.inference.inversion.inversion import Inversion, as_pixels, share_of
from attacks.inference.knowledge import Knowledge
from attacks.inference.labels import LabelInference, label_shares, total_step
from fedsim.training.local_work import LocalWork

if TYPE_CHECKING:
    import torch

_AVERAGED_DISTANCES = 10
"""Last iterations over which the distance of an attempt is averaged."""


class Geiping(Inversion):
    """Signed Adam on the cosine distance of updates plus total variation, with clipped pixels and restarts.

    The update is compared with the update of a client that trains on the guessed images, with all batches of
    all epochs unrolled. The order of a client's images is unknown, and a recovered update is a mean over many
    orders. So every iteration draws a new order; or a few `steps` on all images replace the batches, because
    they are nearer to that mean than any single order. A sum of several clients is treated as one client with
    all their images and as many steps. So is a client that draws some of its images in every round, because
    its recovered update is a mean over many draws.
    """

    name: Literal["geiping"] = "geiping"
    iterations: PositiveInt = 300
    restarts: PositiveInt = 1
    lr: PositiveFloat = 0.1
    """Step length in units of inputs, whose range is 2; divided by 10 after 3/8, 5/8 and 7/8 of the way."""
    total_variation: NonNegativeFloat = 0.01
    """Weight of the mean absolute difference of neighbouring pixels."""
    steps: PositiveInt | None = None
    """Number of steps on all images, of the same total length, that replace the client's batches."""
    images: PositiveInt | None = None
    """Most images that are guessed at once; all images of a sum if not given."""
    labels: Literal["inferred", "known"] = "inferred"

    @property
    def knows_labels(self) -> bool:
        """Whether the scenario grants the label histograms of the images behind the evidence."""
        return self.labels == "known"

    def check(self, knowledge: Knowledge) -> None:
        """Inferred labels need what label inference needs."""
        super().check(knowledge)
        if self.labels == "inferred":
            LabelInference().check(knowledge)

    def invert(
        self, evidence: Evidence, row: int, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch
    ) -> tuple[NDArray[np.float32], int]:
        """The images of the attempt with the smallest distance."""
        count = evidence.clients * knowledge.work.dataset_size
        count = min(count, self.images or count)
        labels = self._labels(evidence, row, knowledge, count)
        best, smallest = np.zeros((count, *knowledge.task.input_shape), dtype=np.float32), np.inf
        for attempt in range(self.restarts):
            look = share_of(watch, attempt, self.restarts)
            begin = rng.normal(0, 0.03, best.shape).astype(np.float32)
            images, distance = self._match(evidence, row, knowledge, begin, labels, rng=rng, watch=look)
            if distance < smallest:
                best, smallest = images, distance
        return best, self.restarts * self.iterations

    def _labels(self, evidence: Evidence, row: int, knowledge: Knowledge, count: int) -> NDArray[np.int64]:
        """(count,) one label per image, in the known or inferred shares."""
        if evidence.label_shares is None:
            shares = label_shares(evidence.updates[row], evidence.starts[row], knowledge)
        else:
            shares = evidence.label_shares[row]
        return np.repeat(np.arange(knowledge.task.outputs), apportioned(shares, count))

    def _match(
        self,
        evidence: Evidence,
        row: int,
        knowledge: Knowledge,
        begin: NDArray[np.float32],
        labels: NDArray[np.int64],
        *,
        rng: np.random.Generator,
        watch: Watch,
    ) -> tuple[NDArray[np.float32], float]:
        """The images from one start, and the cosine distance of their update to the observed one."""
        import torch

        from attacks.inference.inversion.local_steps import simulated_update

        device, module = knowledge.device, knowledge.module_on_device
        start, target = knowledge.tensors(evidence.starts[row]), knowledge.tensors(evidence.updates[row])
        images, classes = torch.from_numpy(begin).to(device), torch.from_numpy(labels).to(device)
        images.requires_grad_()
        optimiser = torch.optim.Adam([images], lr=self.lr)
        drops = [self.iterations * eighths // 8 for eighths in (3, 5, 7)]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, drops, gamma=0.1)
        distances: list[torch.Tensor] = []
        for done in range(1, self.iterations + 1):
            work, batches = self._training(len(labels), knowledge, rng)
            update = simulated_update(module, start, images, classes, work=work, batches=batches)
            distance = cosine_distance(update, target)
            loss = distance + self.total_variation * _variation(images)
            (slope,) = torch.autograd.grad(loss, images)
            images.grad = slope.sign()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                images.clamp_(-1, 1)
            # No number is looked at on the way: the CPU would wait for the device.
            distances.append(distance.detach())
            if done % self.preview_every == 0 or done == self.iterations:
                watch(done, self.iterations, as_pixels(images.detach().cpu().numpy()))
        # How well a single order matches is partly chance; a mean over the last ones is less so.
        last = torch.stack(distances[-_AVERAGED_DISTANCES:]).cpu().double().mean()
        return images.detach().cpu().numpy().copy(), float(last)

    def _training(
        self, count: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[LocalWork, list[torch.Tensor]]:
        """The training settings, and the positions of the images in each step."""
        import torch

        work = knowledge.work
        if self.steps is None:
            return work, [batch.to(knowledge.device) for batch in _batches(count, work, rng)]
        long = work.model_copy(update={"lr": total_step(work) / self.steps, "momentum": 0.0})
        return long, [torch.arange(count, device=knowledge.device)] * self.steps


def apportioned(shares: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """(classes,) integers in these shares that sum to `count`: the largest remainders round up."""
    exact = shares.astype(np.float64) / shares.sum() * count
    whole = np.floor(exact).astype(np.int64)
    short = count - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:short]] += 1
    return np.asarray(whole)


def cosine_distance(update: list[torch.Tensor], target: list[torch.Tensor]) -> torch.Tensor:
    """1 − cosine of two updates, each given layer by layer."""
    import torch

    product = torch.stack([(u * t).sum() for u, t in zip(update, target, strict=True)]).sum()
    lengths = [torch.stack([(u**2).sum() for u in side]).sum().sqrt() for side in (update, target)]
    return 1 - product / (lengths[0] * lengths[1]).clamp_min(1e-30)


def _variation(images: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of neighbouring pixels, down and across."""
    return images.diff(dim=2).abs().mean() + images.diff(dim=3).abs().mean()


def _batches(count: int, work: LocalWork, rng: np.random.Generator) -> list[torch.Tensor]:
    """The positions of the images in every step, with a new order for each epoch."""
    import torch

    size = work.batch_size if count == work.examples_per_round else -(-count // work.batches_per_epoch)
    epochs = work.local_epochs if work.local_steps is None else -(-work.local_steps // -(-count // size))
    orders = [torch.from_numpy(rng.permutation(count)) for _ in range(epochs)]
    return [batch for order in orders for batch in torch.split(order, size)][: work.local_steps]
