"""Updates computed ahead, together and in other processes are the updates that a client computes alone."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream
from fedsim.data import Examples
from fedsim.data.images.labelled import labelled_images
from fedsim.devices.trainer import Trainer
from fedsim.federation import ClientSettings
from fedsim.models import Cnn, Custom, Lenet, Mlp, Model, Resnet, Vit
from fedsim.tasks.images import ImageClassification
from fedsim.training.cohort import Cohort
from fedsim.training.local_training import FlatModel, initial_model
from fedsim.training.stacked import stages_of
from fedsim.trusted.failures import Failures

# Rounding in another order: a few of the last digits of float32, relative to the length of the update.
TOLERANCE = 1e-5
MODELS: list[Model] = [
    Lenet(),
    Lenet(hidden=20),
    Mlp(hidden=16),
    Mlp(hidden=16, activation="sigmoid"),
    Mlp(hidden=6),
    Cnn(width=4, hidden=8),
    Resnet(width=8),
    Resnet(width=8, norm="batch", dropout=0.3),
    Vit(patch=1, width=8, layers=1, hidden=8, heads=2, dropout=0.1),
    Custom(factory=f"{__name__}:odd_network"),
    Custom(factory=f"{__name__}:unknown_network"),
]


def odd_network(image_shape, classes):
    """Everything that the library's networks do not have and that can be stacked all the same."""
    channels, height, width = image_shape
    return nn.Sequential(
        nn.Sequential(
            nn.Conv2d(channels, 5, (2, 3), padding=(1, 0), bias=False), nn.MaxPool2d(2), nn.Sigmoid()
        ),
        nn.Conv2d(5, 4, 2),
        nn.Identity(),
        nn.ReLU(),
        nn.Conv2d(4, 3, 4, padding=1),
        nn.MaxPool2d((2, 2), stride=2),
        nn.Flatten(),
        nn.Linear(3 * (((height + 1) // 2 - 2) // 2) * (((width - 2) // 2 - 2) // 2), classes, bias=False),
    )


def unknown_network(image_shape, classes):
    """With an activation that nobody has taught to the stack."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(int(np.prod(image_shape)), 8), nn.Tanh(), nn.Linear(8, classes)
    )


class TurnsRandom(nn.Module):
    """Deterministic when it is tried out, and random from its fifth batch on."""

    def __init__(self, network, draw):
        super().__init__()
        self.network, self.draw, self.batches = network, draw, 0

    def forward(self, x):
        self.batches += 1
        return self.network(x) * (1 if self.batches < 5 else float(self.draw()))


def asks_numpy_late(image_shape, classes):
    return TurnsRandom(unknown_network(image_shape, classes), np.random.random)


def has_its_own_dice(image_shape, classes):
    return TurnsRandom(unknown_network(image_shape, classes), np.random.default_rng(0).random)


def trainer(
    model, owned=(11, 11, 11, 7, 11, 11, 11, 7), *, size=(18, 17), levels=(0, 256), workers=1, **settings
):
    rng = np.random.default_rng(0)
    images = rng.integers(levels[0], levels[1], (100, *size, 3), dtype=np.uint8)
    examples = Examples(images, rng.integers(0, 4, 100))
    parts = np.split(rng.permutation(100)[: sum(owned)], np.cumsum(owned)[:-1])
    return Trainer(
        data=labelled_images(tuple("abcd"), examples, examples[:1]),
        owned=parts,
        model=model,
        settings=ClientSettings(**{"batch_size": 4, "lr": 0.05, **settings}),
        seed=3,
        workers=workers,
    )


def task_for(size=(18, 17)):
    return ImageClassification(tuple("abcd"), (*size, 3))


def first_model(model, size=(18, 17)):
    return FlatModel(initial_model(model, task_for(size), stream(3, Stage.MODEL))).read()


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize(
    "settings",
    [
        {"local_epochs": 2},
        {"momentum": 0.9, "data_fraction": 0.6, "local_epochs": 2},
        {"batch_size": 64, "lr": 0.5},
    ],
    ids=["uneven last batch", "momentum and a part of the data", "one full batch"],
)
def test_updates_do_not_depend_on_the_company(model, settings):
    training, start = trainer(model, **settings), first_model(model)
    alone = {client: training.update(client, 5, start) for client in range(8)}
    training.prepare(range(8), 5, start)
    together = {client: training.update(client, 5, start).copy() for client in range(8)}
    training.prepare([6, 1], 5, start)
    together_with_one = training.update(6, 5, start)
    for client, update in alone.items():
        assert np.linalg.norm(together[client] - update) <= TOLERANCE * np.linalg.norm(update)
    assert np.linalg.norm(together_with_one - alone[6]) <= TOLERANCE * np.linalg.norm(alone[6])
    assert len({update.tobytes() for update in alone.values()}) == 8


def test_the_networks_of_the_library_are_stacked_where_they_can_be():
    stacked = [stages_of(model.build(task_for())) is not None for model in MODELS]
    assert stacked == [True] * 6 + [False] * 3 + [True, False]


@pytest.mark.parametrize(
    "parts",
    [
        [nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 6, 3, groups=3), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3, dilation=2), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3, padding="same"), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2)],
        [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2)],
        [nn.Conv2d(3, 4, 3), nn.Flatten()],
        [nn.Linear(3, 2), nn.Flatten()],
        [nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Sigmoid(), nn.Linear(4, 2)],
        [nn.Flatten(), *[nn.Linear(4, 4)] * 2],
        [nn.Flatten(), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)],
        [],
    ],
    ids=repr,
)
def test_what_is_not_known_is_not_stacked(parts):
    assert stages_of(nn.Sequential(*parts)) is None


def test_dropout_is_the_clients_and_the_rounds():
    model = Resnet(width=8, dropout=0.5)
    training, start = trainer(model), first_model(model)
    torch.manual_seed(1)
    first, state = training.update(0, 5, start).copy(), torch.get_rng_state()
    torch.manual_seed(2)
    assert np.array_equal(training.update(0, 5, start), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    without = trainer(Resnet(width=8)).update(0, 5, start)
    assert not np.allclose(first, without, atol=1e-6)


def test_ties_in_pooling_go_to_one_place():
    """Grey images: all four places of a pooled pixel are the same, and only one of them may learn."""
    model = Lenet(hidden=8)
    training, start = trainer(model, levels=(200, 201)), first_model(model)
    alone = training.update(0, 0, start)
    training.prepare([0, 1], 0, start)
    assert np.linalg.norm(training.update(0, 0, start) - alone) <= TOLERANCE * np.linalg.norm(alone)


def test_a_training_that_diverges_shows():
    model = Lenet(hidden=8)
    training, start = trainer(model, lr=1e30, local_epochs=3), first_model(model)
    alone = training.update(0, 0, start)
    training.prepare([0, 1], 0, start)
    assert np.isnan(alone).any()
    assert np.isnan(training.update(0, 0, start)).any()


@pytest.mark.parametrize("model", [Lenet(hidden=8), Resnet(width=8)], ids=repr)
def test_any_number_of_processes_gives_the_same_bytes(model):
    start, updates = first_model(model), {}
    for workers in (1, 2, 3):
        with trainer(model, workers=workers) as training:
            for round_index in (0, 1):
                training.prepare(range(8), round_index, start + round_index)
            updates[workers] = [training.update(client, 1, start + 1).tobytes() for client in range(8)]
    assert updates[1] == updates[2] == updates[3]


def test_what_was_trained_before_leaves_no_trace():
    """Products with the images are kept, and a run that goes on after a kill has not kept them."""
    model = Mlp(hidden=16)
    first, start = trainer(model), first_model(model)
    for round_index, (clients, sent) in enumerate([([0, 1, 2, 6], start), (range(8), 2 * start)]):
        first.prepare(clients, round_index, sent)
    second = trainer(model)
    for training in (first, second):
        training.prepare([6, 1, 5], 2, start)
    for client in (6, 1, 5):
        assert first.update(client, 2, start).tobytes() == second.update(client, 2, start).tobytes()


def test_what_was_prepared_is_for_one_model_and_round_only():
    model = Mlp(hidden=4)
    training, start = trainer(model), first_model(model)
    training.prepare([0, 1], 0, start)
    other_round, other_start = training.update(0, 1, start), training.update(0, 0, 2 * start)
    again = trainer(model)
    assert np.array_equal(other_round, again.update(0, 1, start))
    assert np.array_equal(other_start, again.update(0, 0, 2 * start))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (asks_numpy_late, "drew random numbers from NumPy's generator during training"),
        (has_its_own_dice, "gave two updates for client [0-7] in round 5 from the same model"),
    ],
)
def test_a_network_that_turns_random_after_its_trial_ends_the_run(factory, message, workers):
    model = Custom(factory=f"{__name__}:{factory.__name__}")
    with (
        trainer(model, workers=workers) as training,
        pytest.raises(UserError, match=f"model.factory: the network {message}"),
    ):
        training.prepare(range(8), 5, first_model(model))


def test_devices_that_will_not_train_cost_nothing(monkeypatch):
    model, trained = Mlp(hidden=4), []
    training = trainer(model, owned=(8,) * 12, failures=Failures(absent=0.3, interrupted=0.3, lost=0.4))
    monkeypatch.setattr(
        training, "_workers", type("Spy", (), {"run": lambda _, chunks: trained.extend(chunks)})()
    )
    training.prepare(range(12), 0, first_model(model))
    draws = [training.settings.failures.draw(3, client, 0) for client in range(12)]
    assert {"absent", "interrupted", "lost"} == set(draws)
    assert sorted(client for chunk in trained for client in chunk.clients) == [
        client for client, draw in enumerate(draws) if draw == "lost"
    ]


@pytest.mark.parametrize("model", [Resnet(width=8, norm="batch"), Mlp(hidden=8)], ids=repr)
def test_a_device_trains_many_clients_at_once(model):
    """The path of a GPU, taken on the CPU: a device that calls itself something else."""
    training, start = trainer(model, local_epochs=2), first_model(model)
    alone = {client: training.update(client, 5, start).copy() for client in range(8)}
    module = initial_model(model, task_for(), stream(3, Stage.MODEL))
    training._cohort = Cohort(module, task_for().loss, torch.device("cpu"))
    training.prepare(range(8), 5, start)
    for client, update in alone.items():
        difference = np.linalg.norm(training.update(client, 5, start) - update)
        assert difference <= 1e-4 * np.linalg.norm(update)
