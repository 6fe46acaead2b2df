"""Parity with Flower: a run learns what Flower's own strategy and loop learn from the same clients."""

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim.core.settings import members
from fedsim.flower import PARAMETERS, client_number, enter_local_task, parameters_of, round_number
from fedsim.grids.inline import InlineGrid
from fedsim.server.strategies import AnyStrategy
from scenarios.run.apps import trainer
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Inline
from scenarios.run.scenario import load_scenario
from scenarios.run.simulate import simulate
from scenarios.run.world import World

ROUNDS, CLIENTS = 20, 4
TOLERANCE = 1e-4
"""Largest distance of two models, relative to the distance that the training has moved them."""

STRATEGIES = {
    "fedavg": {},
    "fedavgm": {"server_learning_rate": 0.7, "server_momentum": 0.8},
    "fedadam": {"eta": 0.01, "beta_1": 0.8, "beta_2": 0.95, "tau": 0.01},
    "fedadagrad": {"eta": 0.02, "tau": 0.01},
    "fedyogi": {"eta": 0.02, "beta_1": 0.7, "beta_2": 0.9, "tau": 0.01},
}
CLASSES = {name.lower(): getattr(flower, name) for name in flower.__all__}


def world_of(file, name, weighting):
    settings = "".join(f", {key} = {value}" for key, value in STRATEGIES[name].items())
    return World.prepare(
        load_scenario(
            file,
            [
                f"federation={{ clients = {CLIENTS}, rounds = {ROUNDS}, server_model = 'updated' }}",
                "federation.participation={ name = 'bernoulli', rate = 1.0 }",
                f"federation.strategy={{ name = '{name}'{settings} }}",
                f"clients.weighting={weighting}",
                "clients.batch_size=4",
                "clients.lr=0.05",
                "data.partition={ name = 'iid', sizes = [3, 8, 14, 5] }",
            ],
        )
    )


def flowers_model(world, name, weighting):
    """The model after Flower's own `start()`, with clients that send models as Flower expects them."""
    enter_local_task()
    training, app = trainer(world), ClientApp()

    @app.train()
    def train(message: Message, context) -> Message:
        client, sent = client_number(context), parameters_of(message.content["arrays"])
        model = sent + training.update(client, round_number(message) - 1, sent)
        examples = training.examples_used(client) if weighting == "examples" else 1
        arrays = ArrayRecord({PARAMETERS: Array(model)})
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})}),
            reply_to=message,
        )

    strategy = CLASSES[name](fraction_evaluate=0.0, **STRATEGIES[name])
    first = ArrayRecord({PARAMETERS: Array(world.start)})
    return parameters_of(strategy.start(InlineGrid(app, CLIENTS), first, num_rounds=ROUNDS).arrays)


@pytest.mark.parametrize("weighting", ["equal", "examples"])
@pytest.mark.parametrize("name", members(AnyStrategy))
def test_a_run_learns_what_flower_learns(scenario_file, tmp_path, name, weighting):
    world = world_of(scenario_file, name, weighting)
    theirs = flowers_model(world, name, weighting)
    simulate(world, RunDirectory.create(tmp_path / "run", replace=False), Inline(workers=1))
    ours = world.model.read()
    moved, distance = np.linalg.norm(theirs - world.start), np.linalg.norm(ours - theirs)
    print(f"{name}, {weighting}: relative distance from Flower's model {distance / moved:.1e}")
    assert moved > 0.1
    assert distance <= TOLERANCE * moved


def test_the_weighting_matters(scenario_file):
    """Otherwise the test above could not tell them apart."""
    world = world_of(scenario_file, "fedavg", "equal")
    equal, by_examples = (flowers_model(world, "fedavg", weighting) for weighting in ("equal", "examples"))
    moved = np.linalg.norm(equal - world.start)
    assert np.linalg.norm(equal - by_examples) > 100 * TOLERANCE * moved
