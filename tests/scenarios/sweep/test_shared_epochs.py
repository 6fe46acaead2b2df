import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.runner import train_rounds, train_run
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World
from scenarios.sweep import shared_epochs
from scenarios.sweep.shared_epochs import rounds_at_a_time, train_shared_epochs
from scenarios.sweep.work import HONEST, train_shared

FILES = ("transcript/aggregates.npy", "transcript/rounds.csv", "truth/participation.npy", "truth/updates.npy")


def scenarios(file, *overrides):
    few = ("federation.rounds=4", "clients.batch_size=8", "clients.failures.lost=0.2")
    return {
        epochs: load_scenario(file, [*few, f"clients.local_epochs={epochs}", *overrides])
        for epochs in (2, 5, 1)
    }


def unknown_network(image_shape, classes):
    """One that clients cannot be trained together with."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4), nn.Tanh(), nn.Linear(4, classes))


def folder(path):
    return RunDirectory.create(path, replace=False)


@pytest.mark.parametrize("at_a_time", [4, 3, 1])
@pytest.mark.parametrize(
    "model",
    [
        'model={ name = "mlp", hidden = 8 }',
        f"model={{ name = 'custom', factory = '{__name__}:unknown_network' }}",
    ],
)
def test_one_training_leaves_the_bytes_of_many(model, at_a_time, scenario_file, tmp_path, monkeypatch):
    family = scenarios(scenario_file, model, "federation.clients=4", "clients.momentum=0.5")
    for epochs, scenario in family.items():
        train_run(World.prepare(scenario), folder(tmp_path / f"alone-{epochs}"), engine=Inline(1))
    runs = [(scenario, folder(tmp_path / f"shared-{epochs}")) for epochs, scenario in family.items()]

    trained = []
    from fedsim.devices.trainer import Trainer

    original = Trainer._train
    monkeypatch.setattr(
        Trainer,
        "_train",
        lambda self, chunk: (trained.append(self.settings.local_epochs), original(self, chunk)),
    )
    done = [directory.path.name for directory, _ in train_shared_epochs(runs, at_a_time=at_a_time, workers=1)]
    assert done == ["shared-5", "shared-2", "shared-1"]
    assert set(trained) == {5}
    for epochs in family:
        for name in FILES:
            alone, shared = (tmp_path / f"{kind}-{epochs}" / name for kind in ("alone", "shared"))
            assert alone.read_bytes() == shared.read_bytes(), (epochs, name)
    sums = [np.load(tmp_path / f"shared-{epochs}" / FILES[0]) for epochs in (1, 2, 5)]
    assert np.linalg.norm(sums[0]) < np.linalg.norm(sums[1]) < np.linalg.norm(sums[2])
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("stop", [2, 5])
def test_what_was_interrupted_goes_on_to_the_same_bytes(stop, scenario_file, tmp_path, monkeypatch):
    family = scenarios(scenario_file, "federation.clients=4")
    for epochs, scenario in family.items():
        train_run(World.prepare(scenario), folder(tmp_path / f"alone-{epochs}"), engine=Inline(1))
    runs = [(scenario, folder(tmp_path / f"shared-{epochs}")) for epochs, scenario in family.items()]
    calls = itertools.count()

    def give_up(*arguments, **options):
        if next(calls) == stop:
            raise KeyboardInterrupt
        train_rounds(*arguments, **options)

    monkeypatch.setattr(shared_epochs, "train_rounds", give_up)
    with pytest.raises(KeyboardInterrupt):
        list(train_shared_epochs(runs, at_a_time=1, workers=1))
    assert len(list(train_shared_epochs(runs, at_a_time=3, workers=1))) == 3
    for epochs in family:
        for name in FILES:
            alone, shared = (tmp_path / f"{kind}-{epochs}" / name for kind in ("alone", "shared"))
            assert alone.read_bytes() == shared.read_bytes(), (epochs, name)


def test_only_what_can_be_shared_is(scenario_file, tmp_path):
    family = scenarios(scenario_file)
    other = load_scenario(scenario_file, ["clients.local_epochs=3", "clients.lr=0.5"])
    moving = load_scenario(scenario_file, ["federation.server_model=updated"])
    with pytest.raises(ValueError, match="more than their local epochs"):
        list(
            train_shared_epochs(
                [(family[1], folder(tmp_path / "a")), (other, folder(tmp_path / "b"))], at_a_time=1
            )
        )
    with pytest.raises(ValueError, match="model must be fixed"):
        list(train_shared_epochs([(moving, folder(tmp_path / "c"))], at_a_time=1))


def test_so_many_rounds_are_shared_at_a_time_as_there_is_room_for(scenario_file, tmp_path, monkeypatch):
    family = list(scenarios(scenario_file, "federation.clients=4").values())
    world = World.prepare(family[0])
    needed = 3 * int(world.schedule.sum(axis=1).max()) * world.model.dim * 4
    for free, rounds in ((6 * needed, 3), (6 * needed - 1, 2), (needed, 0)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert rounds_at_a_time(family, tmp_path) == rounds


def test_trainings_without_room_are_done_one_by_one(scenario_file, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    family = scenarios(scenario_file, "federation.clients=4", "federation.rounds=2")
    train_shared([(scenario, tmp_path / f"{epochs}") for epochs, scenario in family.items()], "1.0", False)
    assert all((tmp_path / f"{epochs}" / HONEST).exists() for epochs in family)


def test_a_training_that_diverges_does_not_take_shorter_ones_with_it(scenario_file, tmp_path):
    """One epoch leaves numbers that are huge and finite, three do not."""
    scenarios_ = [
        load_scenario(
            scenario_file, ["federation.rounds=2", "clients.lr=1e30", f"clients.local_epochs={epochs}"]
        )
        for epochs in (1, 3)
    ]
    runs = [(scenario, folder(tmp_path / str(scenario.clients.local_epochs))) for scenario in scenarios_]
    assert len(list(train_shared_epochs(runs, at_a_time=2, workers=1))) == 2
    short, long = (np.load(run.transcript / "aggregates.npy") for _, run in runs)
    assert np.isfinite(short).all()
    assert not np.isfinite(long).all()
