"""Servers and devices that remember: SCAFFOLD and FedBN learn what they should, and survive SIGKILL."""

import os
import signal

import numpy as np
import pytest
import torch

from fedsim.core.seeds import Stage, stream
from fedsim.models.normalisation import local_entries
from fedsim.records import Transcript
from fedsim.training.local_training import epochs
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.runner import train_run
from scenarios.run.scenario import load_scenario
from scenarios.run.simulate import simulate
from scenarios.run.world import World

ROUNDS, CLIENTS, LR = 10, 4, 0.05
LEARNING = (
    f"federation={{ clients = {CLIENTS}, rounds = {ROUNDS}, server_model = 'updated' }}",
    "federation.participation={ name = 'bernoulli', rate = 0.6 }",
    "clients.batch_size=4",
    "clients.local_epochs=2",
    f"clients.lr={LR}",
)
SIZES = "data.partition={ name = 'iid', sizes = [3, 8, 14, 5] }"
SCAFFOLD = "clients.algorithm=scaffold"
NORMALISED = "model={ name = 'resnet', width = 8, norm = 'batch', statistics = 'fedbn' }"
MEMORIES = {
    "fedavgm": ("federation.strategy={ name = 'fedavgm', server_momentum = 0.8 }",),
    "fedadam": ("federation.strategy={ name = 'fedadam', eta = 0.01 }",),
    "fedadagrad": ("federation.strategy={ name = 'fedadagrad', eta = 0.02 }",),
    "fedyogi": ("federation.strategy={ name = 'fedyogi', eta = 0.02 }",),
    "scaffold": (SCAFFOLD, SIZES),
    "scaffold, fedadam": (SCAFFOLD, "federation.strategy={ name = 'fedadam', eta = 0.01 }"),
    "fedbn": (NORMALISED, "clients.batch_size=8", "clients.local_epochs=1"),
}


def trained(file, out, overrides, training=lambda done, total: None):
    """What `fedsim run --resume` does, without the attack."""
    world = World.prepare(load_scenario(file, [*LEARNING, *overrides]))
    directory = RunDirectory.resume(out, world.scenario.to_toml())
    train_run(world, directory, engine=Inline(workers=1), training=training)
    return world, directory


def killed(action, after):
    """Run an action in a fork that SIGKILLs itself after so many rounds."""

    def die(done, total):
        if done == after:
            os.kill(os.getpid(), signal.SIGKILL)

    if (child := os.fork()) == 0:
        action(die)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("overrides", MEMORIES.values(), ids=MEMORIES)
def test_a_killed_run_ends_in_the_same_bytes(scenario_file, tmp_path, monkeypatch, overrides):
    monkeypatch.setattr("fedsim.trusted.checkpoint._TIME_SHARE", float("inf"))  # after every round
    trained(scenario_file, tmp_path / "whole", overrides)
    for after in (2, 7):
        assert killed(lambda die: trained(scenario_file, tmp_path / "parts", overrides, die), after)
    trained(scenario_file, tmp_path / "parts", overrides)
    whole, parts = (
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name not in ("pace.csv", "checkpoint.zip")
        }
        for folder in (tmp_path / "whole", tmp_path / "parts")
    )
    assert {"transcript/aggregates.npy", "truth/updates.npy", "model.safetensors"} <= set(whole)
    assert parts == whole


def reference(world):
    """SCAFFOLD, option II, as in the paper: the model and the server's control variate after all rounds."""
    task, settings = world.data.task, world.scenario.clients
    module = world.model.module.train()
    parameters = list(module.parameters())
    x = [p.detach().clone() for p in parameters]
    c = [torch.zeros_like(p) for p in parameters]
    own = [[torch.zeros_like(p) for p in parameters] for _ in range(CLIENTS)]
    for number, cohort in enumerate(world.schedule):
        moves, changes = [], []
        for i in np.flatnonzero(cohort):
            mine = world.data.train[world.owned[i]]
            inputs, targets = task.as_inputs(mine.inputs), task.as_targets(mine.targets)
            y = [p.clone() for p in x]
            steps = 0
            rng = stream(world.scenario.seed, Stage.CLIENT, int(i), number)
            for order in epochs(len(mine), settings, rng):
                for batch in torch.split(torch.from_numpy(order), settings.batch_size):
                    for p, value in zip(parameters, y, strict=True):
                        p.data = value
                    gradients = torch.autograd.grad(
                        task.loss(module(inputs[batch]), targets[batch]), parameters
                    )
                    y = [v - LR * (g - a + b) for v, g, a, b in zip(y, gradients, own[i], c, strict=True)]
                    steps += 1
            new = [a - b + (p - q) / (steps * LR) for a, b, p, q in zip(own[i], c, x, y, strict=True)]
            moves.append([q - p for p, q in zip(x, y, strict=True)])
            changes.append([a - b for a, b in zip(new, own[i], strict=True)])
            own[i] = new
        if moves:
            x = [p + sum(d) / len(moves) for p, d in zip(x, zip(*moves, strict=True), strict=True)]
            c = [p + sum(d) / CLIENTS for p, d in zip(c, zip(*changes, strict=True), strict=True)]
    return (torch.cat([p.reshape(-1) for p in vector]).numpy() for vector in (x, c))


def test_scaffold_learns_what_the_paper_says(scenario_file, tmp_path):
    world = World.prepare(load_scenario(scenario_file, [*LEARNING, SCAFFOLD, SIZES]))
    theirs, _ = reference(world)
    simulate(world, RunDirectory.create(tmp_path / "run", replace=False), Inline(workers=1))
    ours, first = world.model.read(), world.start[: world.model.dim]
    distance, moved = np.linalg.norm(ours - theirs), np.linalg.norm(theirs - first)
    print(f"scaffold: relative distance from the reference {distance / moved:.1e}")
    assert moved > 0.1
    assert distance <= 1e-4 * moved
    plain = World.prepare(load_scenario(scenario_file, [*LEARNING, SIZES]))
    simulate(plain, RunDirectory.create(tmp_path / "plain", replace=False), Inline(workers=1))
    assert np.linalg.norm(plain.model.read() - theirs) > 1e-2 * moved  # control variates matter


@pytest.mark.parametrize(("sizes", "redundant"), [((), True), ((SIZES,), False)])
def test_the_second_sum_adds_something_if_clients_differ_in_steps(scenario_file, tmp_path, sizes, redundant):
    """With equally many steps, the sum of changes follows from the sum of updates and what is public."""
    world, directory = trained(scenario_file, tmp_path / "run", (SCAFFOLD, *sizes))
    transcript = Transcript.load(directory.transcript)
    updates, changes = np.split(np.asarray(transcript.aggregates, dtype=np.float64), 2, axis=1)
    control = np.cumsum(changes, axis=0) - changes  # before each round
    path = world.scenario.clients.steps * LR
    expected = -transcript.cohort_sizes[:, None] * control / CLIENTS - updates / path
    error = np.linalg.norm(changes - expected) / np.linalg.norm(changes)
    assert error < 1e-4 if redundant else error > 1e-2


def test_fedbn_keeps_scale_and_shift_on_the_devices(scenario_file, tmp_path):
    world, directory = trained(scenario_file, tmp_path / "run", MEMORIES["fedbn"])
    local = local_entries(world.model.module)
    aggregates = Transcript.load(directory.transcript).aggregates
    assert not aggregates[:, local].any()
    assert aggregates[:, ~local].any(axis=0).mean() > 0.9
    others = [setting.replace("fedbn", "local") for setting in MEMORIES["fedbn"]]
    _, shared = trained(scenario_file, tmp_path / "shared", others)
    theirs = Transcript.load(shared.transcript).aggregates
    # A device's first update is the same; later ones start from its own scale and shift.
    np.testing.assert_array_equal(aggregates[0][~local], theirs[0][~local])
    assert not np.allclose(aggregates[-1][~local], theirs[-1][~local])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((SCAFFOLD, "clients.momentum=0.5"), "scaffold takes plain steps"),
        ((SCAFFOLD, "clients.optimiser=adam"), "scaffold takes plain steps"),
        ((SCAFFOLD, "clients.weighting=examples"), "expected weighting = equal"),
        ((SCAFFOLD, "federation.server_model=fixed"), "set federation.server_model to updated"),
        ((SCAFFOLD, NORMALISED, "clients.batch_size=8"), "another model.statistics than fedbn"),
    ],
)
def test_what_does_not_go_together_is_one_line(fedsim, scenario_file, overrides, message):
    settings = [part for setting in (*LEARNING, *overrides) for part in ("--set", setting)]
    done = fedsim("run", scenario_file, "--out", "run", *settings)
    assert (done.status, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
