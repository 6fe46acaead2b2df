import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedsim.federation import ClientSettings
from fedsim.models import Cnn, Lenet, Mlp, Resnet
from fedsim.tasks.images import ImageClassification
from fedsim.training.learning_rates import Constant, Cosine, Exponential, Steps
from fedsim.training.local_training import FlatModel, evaluate, initial_model, local_update

SHAPE, CLASSES = (3, 32, 32), 10
TASK = ImageClassification(tuple("abcdefghij"), (32, 32, 3))


def data(n=20):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((n, *SHAPE), generator=generator) * 2 - 1
    return images, torch.randint(CLASSES, (n,), generator=generator)


def build(model, seed=0):
    return initial_model(model, TASK, np.random.default_rng(seed))


CONVOLUTIONS = (3 * 6 * 25 + 6) + (6 * 16 * 25 + 16)
LENET_SIZES = {84: 62_006, 512: CONVOLUTIONS + (400 * 120 + 120) + (120 * 512 + 512) + (512 * 10 + 10)}


@pytest.mark.parametrize("hidden", [84, 512])
def test_lenet_has_the_size_of_the_paper(hidden):
    assert FlatModel(build(Lenet(hidden=hidden))).dim == LENET_SIZES[hidden]


def test_initial_model_follows_its_generator_and_leaves_the_global_one_alone():
    before = torch.random.get_rng_state()
    first, again, other = (FlatModel(build(Mlp(), seed)).read() for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("model", [Lenet(), Mlp(), Mlp(activation="sigmoid"), Cnn(), Resnet()])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_update_is_what_a_plain_loop_computes(model, momentum):
    """The flat buffers are an optimisation; a textbook loop with torch's optimiser must agree."""
    settings = ClientSettings(batch_size=8, local_epochs=2, lr=0.05, momentum=momentum, data_fraction=0.75)
    images, labels = data()
    module = build(model)
    plain = copy.deepcopy(module)
    flat = FlatModel(module)
    start = flat.read()
    update = local_update(
        flat,
        start,
        inputs=images,
        targets=labels,
        loss=TASK.loss,
        settings=settings,
        rng=np.random.default_rng(5),
    )

    rng = np.random.default_rng(5)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=momentum)
    drawn = rng.permutation(20)[:15]
    for _ in range(2):
        order = rng.permutation(drawn)
        for begin in range(0, 15, 8):
            batch = torch.from_numpy(order[begin : begin + 8])
            optimiser.zero_grad()
            nn.functional.cross_entropy(plain(images[batch]), labels[batch]).backward()
            optimiser.step()
    expected = torch.cat([p.detach().reshape(-1) for p in plain.parameters()]).numpy() - start
    np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-7)


def trained(settings, seed=5):
    """Start and update of a small network by these settings."""
    images, labels = data()
    flat = FlatModel(build(Mlp(hidden=8)))
    start = flat.read()
    update = local_update(
        flat,
        start,
        inputs=images,
        targets=labels,
        loss=TASK.loss,
        settings=settings,
        rng=np.random.default_rng(seed),
    )
    return start, update


@pytest.mark.parametrize("proximal_mu", [0.0, 0.5])
@pytest.mark.parametrize("gradient_clip", [None, 0.3])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_recipes_are_those_of_torch(optimiser, weight_decay, gradient_clip, proximal_mu):
    """FedProx's term is part of the loss, clipping comes before the optimiser, which adds the decay."""
    settings = ClientSettings(
        batch_size=8,
        local_steps=4,
        lr=0.05,
        optimiser=optimiser,
        weight_decay=weight_decay,
        gradient_clip=gradient_clip,
        proximal_mu=proximal_mu,
    )
    start, update = trained(settings)
    plain, (images, labels) = build(Mlp(hidden=8)), data()
    begun = [p.detach().clone() for p in plain.parameters()]
    kind = torch.optim.SGD if optimiser == "sgd" else torch.optim.Adam
    optimiser = kind(plain.parameters(), lr=0.05, weight_decay=weight_decay)
    rng = np.random.default_rng(5)
    drawn = rng.permutation(20)
    orders = [rng.permutation(drawn), rng.permutation(drawn)]
    # Twenty examples are three batches; the fourth step begins another epoch.
    for batch in (orders[0][:8], orders[0][8:16], orders[0][16:], orders[1][:8]):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(plain(images[batch]), labels[batch])
        away = [((p - b) ** 2).sum() for p, b in zip(plain.parameters(), begun, strict=True)]
        (loss + proximal_mu / 2 * torch.stack(away).sum()).backward()
        if gradient_clip is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), gradient_clip)
        optimiser.step()
    expected = torch.cat([p.detach().reshape(-1) for p in plain.parameters()]).numpy() - start
    np.testing.assert_allclose(update, expected, rtol=1e-4, atol=1e-6)


def test_steps_and_epochs_of_the_same_number_are_the_same_training():
    epochs = ClientSettings(batch_size=8, local_epochs=2)
    steps = ClientSettings(batch_size=8, local_steps=6)
    np.testing.assert_array_equal(trained(epochs)[1], trained(steps)[1])


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Constant(), [1, 1, 1, 1]),
        (Steps(every=2, drop=0.1), [1, 1, 0.1, 0.1]),
        (Exponential(decay=0.5), [1, 0.5, 0.25, 0.125]),
        (Cosine(rounds=2, last=0.2), [1, 0.6, 0.2, 0.2]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_learning_rates_over_rounds(schedule, factors):
    work = ClientSettings(lr=0.5, lr_schedule=schedule)
    assert [work.in_round(r).lr for r in range(4)] == pytest.approx([0.5 * f for f in factors])


def test_nothing_of_one_client_reaches_the_next():
    settings = ClientSettings(batch_size=8, momentum=0.9)
    images, labels = data()
    model = FlatModel(build(Mlp()))
    start = model.read()

    def update(rng_seed):
        return local_update(
            model,
            start,
            inputs=images,
            targets=labels,
            loss=TASK.loss,
            settings=settings,
            rng=np.random.default_rng(rng_seed),
        )

    first = update(1)
    update(2)
    assert np.array_equal(update(1), first)


def test_inputs_span_minus_one_to_one():
    pixels = np.zeros((1, 2, 2, 3), dtype=np.uint8)
    pixels[0, 0, 1] = (255, 0, 0)
    tensor = TASK.as_inputs(pixels)
    assert tensor.shape == (1, 3, 2, 2)
    assert tensor[0, 0, 0, 1] == 1
    assert tensor[0, 1, 0, 1] == -1


def test_accuracy_counts_hits():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, 1.0, 0.0]).expand(len(x), 3)

    labels = torch.tensor([1] * 300 + [0] * 900)
    assert evaluate(TASK, Constant(), torch.zeros(1200, 3, 2, 2), labels) == 0.25
