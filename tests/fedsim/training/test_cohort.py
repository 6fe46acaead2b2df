"""Cohorts trained at once on a device are the clients that `local_update` trains one by one."""

from typing import Any

import numpy as np
import pytest
import torch

from fedsim.core.errors import UserError
from fedsim.federation import ClientSettings
from fedsim.models import Lenet, Mlp, Resnet, Vit
from fedsim.tasks.images import ImageClassification
from fedsim.training.cohort import Cohort
from fedsim.training.device import find_device
from fedsim.training.local_training import FlatModel, epochs, initial_model, local_update
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World

TASK, CLIENTS, EXAMPLES = ImageClassification(tuple("abcd"), (16, 16, 3)), 3, 7
PLAIN: dict[str, Any] = {}
RICH: dict[str, Any] = {"momentum": 0.5, "weight_decay": 0.1, "proximal_mu": 1.0, "gradient_clip": 0.5}
CASES = [
    (Lenet(), PLAIN),
    (Mlp(hidden=8), RICH),
    (Mlp(hidden=8), {"optimiser": "adam", "gradient_clip": 0.5}),
    (Resnet(width=8), RICH),
    (Resnet(width=8, norm="batch"), PLAIN),
    (Vit(width=8, layers=1, hidden=8, heads=2), PLAIN),
]
TOLERANCE = 1e-3
"""Relative to the length of an update; Adam and norms amplify rounding."""


def build(model):
    return initial_model(model, TASK, np.random.default_rng(0))


def examples():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((CLIENTS, EXAMPLES, 3, 16, 16), generator=generator) * 2 - 1
    return inputs, torch.randint(4, (CLIENTS, EXAMPLES), generator=generator)


def batches(settings):
    orders = zip(*(epochs(EXAMPLES, settings, np.random.default_rng(k)) for k in range(CLIENTS)), strict=True)
    for order in orders:
        yield from torch.split(torch.from_numpy(np.stack(order)), settings.batch_size, dim=1)


@pytest.mark.parametrize(("model", "recipe"), CASES, ids=str)
def test_a_cohort_is_its_clients(model, recipe):
    settings = ClientSettings(batch_size=4, local_epochs=2, lr=0.05, **recipe)
    flat, (inputs, targets) = FlatModel(build(model)), examples()
    start = flat.read()
    alone = [
        local_update(
            flat,
            start,
            inputs=inputs[k],
            targets=targets[k],
            loss=TASK.loss,
            settings=settings,
            rng=np.random.default_rng(k),
        )
        for k in range(CLIENTS)
    ]
    cohort = Cohort(build(model), TASK.loss, torch.device("cpu"))
    together = cohort.updates(
        torch.from_numpy(start),
        inputs=inputs,
        targets=targets,
        batches=list(batches(settings)),
        settings=settings,
    )
    for mine, ours in zip(alone, together.numpy(), strict=True):
        assert np.linalg.norm(mine - ours) <= TOLERANCE * np.linalg.norm(mine)


@pytest.mark.parametrize("model", [Resnet(width=8), Resnet(width=8, norm="batch"), Mlp(hidden=8)], ids=str)
def test_nothing_leaves_the_device(model):
    """On the device `meta`, any step through the CPU, or any look at a number, would raise."""
    meta = torch.device("meta")
    cohort = Cohort(build(model), TASK.loss, meta)
    dim = FlatModel(build(model)).dim
    settings = ClientSettings(batch_size=4, momentum=0.5, gradient_clip=1.0, proximal_mu=0.1)
    updates = cohort.updates(
        torch.empty(dim, device=meta),
        inputs=torch.empty((CLIENTS, EXAMPLES, 3, 16, 16), device=meta),
        targets=torch.empty((CLIENTS, EXAMPLES), dtype=torch.int64, device=meta),
        batches=[torch.empty((CLIENTS, 4), dtype=torch.int64, device=meta)] * 2,
        settings=settings,
    )
    assert (updates.shape, updates.device.type) == ((CLIENTS, dim), "meta")


def test_devices_by_name(scenario_file, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match=r"engine\.device is 'cuda': torch finds no such device here"):
        World.prepare(load_scenario(scenario_file, ["engine.device=cuda"]))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find_device("auto") == torch.device("mps")
