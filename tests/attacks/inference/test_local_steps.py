"""The unrolled local training against the real one, and its derivatives against finite differences."""

import numpy as np
import pytest
import torch
from torch import nn

from attacks.inference.inversion.geiping import cosine_distance
from attacks.inference.inversion.local_steps import simulated_update
from fedsim.models import Cnn, Lenet, Mlp, Resnet, Vit
from fedsim.training.local_work import LocalWork
from tests.helpers.updates import DATA, knowledge_of, start_of, update_on


def orders(work, images, seed):
    """The batches that `local_update` draws from a generator with this seed."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(images)[: work.examples_per_round]
    for _ in range(work.local_epochs):
        yield from torch.split(torch.from_numpy(rng.permutation(drawn)), work.batch_size)


@pytest.mark.parametrize(
    "model", [Mlp(hidden=16), Lenet(), Cnn(width=4), Resnet()], ids=lambda model: model.name
)
@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.5, "weight_decay": 0.1, "proximal_mu": 2.0},
        {"gradient_clip": 0.5},
        {"optimiser": "adam", "weight_decay": 0.1},
    ],
    ids=str,
)
def test_the_simulated_update_is_the_one_a_client_sends(model, recipe):
    """Mode, normalisation, loss scale, optimiser and last smaller batches are the client's own."""
    work = LocalWork(dataset_size=10, batch_size=4, local_epochs=2, data_fraction=0.9, **recipe)
    images, labels = DATA.train.inputs[:10], DATA.train.targets[:10]
    update, start = update_on(model, work, images, labels, seed=5)
    knowledge = knowledge_of(model, work)
    simulated = simulated_update(
        knowledge.module,
        [torch.from_numpy(w) for w in knowledge.layers(start)],
        DATA.task.as_inputs(images),
        torch.from_numpy(labels),
        work=work,
        batches=orders(work, 10, 5),
    )
    flat = torch.cat([layer.detach().reshape(-1) for layer in simulated]).numpy()
    # A norm adds up rounding, and Adam divides by roots of tiny squares.
    digits = 2e-3 if work.optimiser == "adam" else 1e-4 if work.gradient_clip else 1e-5
    np.testing.assert_allclose(flat, update, rtol=digits, atol=digits * np.abs(update).max())


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft labels"])
def test_derivatives_of_the_unrolled_objective(momentum, soft):
    """In double precision, through two epochs of two batches, with respect to images and soft labels."""
    work = LocalWork(dataset_size=4, batch_size=2, local_epochs=2, lr=0.3, momentum=momentum)
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Sigmoid(), nn.Linear(5, 3)).double()
    start = [p.detach().clone() for p in module.parameters()]
    target = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in start]
    images = torch.randn((4, 3, 2, 2), generator=generator, dtype=torch.float64, requires_grad=True)
    logits = torch.randn((4, 3), generator=generator, dtype=torch.float64, requires_grad=True)
    batches = [torch.tensor(b) for b in ([0, 1], [2, 3], [3, 0], [1, 2])]

    def objective(images, logits):
        labels = logits.softmax(dim=1) if soft else torch.tensor([0, 2, 1, 1])
        update = simulated_update(module, start, images, labels, work=work, batches=batches)
        return cosine_distance(update, target)

    inputs = (images, logits) if soft else (images, logits.detach())
    assert torch.autograd.gradcheck(objective, inputs)


def test_models_start_alike_for_tests():
    """`start_of` draws from its own generator, so that every test sees the same network."""
    first, again = (next(start_of(Mlp(hidden=2)).parameters()) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    "model",
    [Resnet(width=8), Resnet(width=8, norm="batch"), Vit(width=8, layers=1, heads=2, hidden=8)],
    ids=lambda model: model.name,
)
def test_every_network_can_be_differentiated_twice(model):
    """Attention included, whose quick form in torch has no second derivative."""
    work = LocalWork(dataset_size=2, batch_size=2)
    knowledge = knowledge_of(model, work)
    images = DATA.task.as_inputs(DATA.train.inputs[:2]).requires_grad_()
    start = list(knowledge.module.parameters())
    update = simulated_update(
        knowledge.module,
        start,
        images,
        torch.from_numpy(DATA.train.targets[:2]),
        work=work,
        batches=[torch.arange(2)],
    )
    (slope,) = torch.autograd.grad(cosine_distance(update, start), images)
    assert torch.isfinite(slope).all()
    assert slope.abs().max() > 0
