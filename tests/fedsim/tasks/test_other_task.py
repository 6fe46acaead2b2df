"""A task that the library does not have, regression on float features, goes through the ordinary path."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch

from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream
from fedsim.data import Dataset, Dirichlet, Examples, Iid, Partition
from fedsim.data.source import Source
from fedsim.models import Lenet, Mlp
from fedsim.tasks.task import Inputs, Metric, Task
from fedsim.training.local_training import evaluate
from fedsim.trusted.truth import Truth
from scenarios.run.apps import trainer
from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import load_scenario
from scenarios.run.simulate import simulate
from scenarios.run.world import World

SLOPES = np.array([1.0, -2.0, 0.5, 3.0])


@dataclass(frozen=True)
class Regression(Task):
    """One number per row of a table."""

    features: int

    title: ClassVar[str] = "regression"
    noun: ClassVar[str] = "rows"
    inputs: ClassVar[Inputs] = Inputs(axes=("features",))
    metric: ClassVar[Metric] = Metric("rmse", higher_is_better=False)

    @property
    def input_shape(self):
        return (self.features,)

    @property
    def outputs(self):
        return 1

    @property
    def signature(self):
        return f"{self.features} features"

    def check(self, part, inputs, targets):
        if inputs.shape[1:] != (self.features,) or targets.dtype != np.float32:
            raise ValueError(f"{part} rows: expected {self.features} features")

    def as_inputs(self, stored):
        return torch.from_numpy(stored)

    def loss(self, outputs, targets):
        return torch.nn.functional.mse_loss(outputs[:, 0], targets)

    def metric_terms(self, outputs, targets):
        return (outputs[:, 0] - targets) ** 2

    def metric_of(self, mean):
        return float(np.sqrt(mean))


class Tables(Source):
    """A linear function of four features."""

    task_type: ClassVar[type[Task]] = Regression
    name: Literal["tables"] = "tables"
    partition: Partition = Iid()

    def load(self, seed):
        rng = stream(seed, Stage.DATA)
        parts = []
        for rows in (200, 50):
            x = rng.normal(size=(rows, len(SLOPES))).astype(np.float32)
            parts.append(Examples(x, (x @ SLOPES).astype(np.float32)))
        return Dataset(Regression(len(SLOPES)), *parts)

    @classmethod
    def get(cls, fetching):
        raise AssertionError


@pytest.fixture
def scenario(scenario_file):
    """Clients with tables; the union of data sources does not know them, so nothing validates the copy."""
    read = load_scenario(scenario_file, ["model=mlp", "model.hidden=8", "federation.server_model=updated"])
    return read.model_copy(update={"data": Tables()})


def test_a_federation_trains_on_another_task(scenario, tmp_path):
    world = World.prepare(scenario)
    task, test = world.data.task, world.data.test
    before = evaluate(task, world.model.module, task.as_inputs(test.inputs), task.as_targets(test.targets))
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    simulate(world, directory)
    after = evaluate(task, world.model.module, task.as_inputs(test.inputs), task.as_targets(test.targets))
    assert after < before
    assert np.isfinite(Truth.load(directory.truth).updates).any()


def test_an_update_descends_the_task_s_own_loss(scenario):
    """One step on all rows, against autograd and the definition of the loss."""
    clients = scenario.clients.model_copy(update={"batch_size": 1000, "lr": 0.1})
    world = World.prepare(scenario.model_copy(update={"clients": clients}))
    mine = world.data.train[world.owned[2]]
    module = Mlp(hidden=8).build(world.data.task)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(world.start), module.parameters())
    loss = ((module(torch.from_numpy(mine.inputs))[:, 0] - torch.from_numpy(mine.targets)) ** 2).mean()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
    with trainer(world) as training:
        training.prepare(range(3), 0, world.start)
        update = training.update(2, 0, world.start)
    np.testing.assert_allclose(update, -0.1 * gradient.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("attack", ["dlg", "geiping", "analytic"])
def test_an_attack_on_images_says_what_it_needs(scenario, scenario_file, attack):
    settings = load_scenario(scenario_file, [f"attack.inference=['{attack}']"]).attack
    with pytest.raises(UserError) as caught:
        World.prepare(scenario.model_copy(update={"attack": settings}))
    assert str(caught.value) == (
        f"attack.inference: {attack} needs image classification; the data are for regression"
    )


def test_label_inference_needs_classes(scenario, scenario_file):
    settings = load_scenario(scenario_file, ["attack.inference=['label_inference']"]).attack
    with pytest.raises(UserError, match="label_inference needs classification; the data are for regression"):
        World.prepare(scenario.model_copy(update={"attack": settings}))


def test_a_model_for_images_says_what_it_needs(scenario):
    with pytest.raises(UserError) as caught:
        World.prepare(scenario.model_copy(update={"model": Lenet()}))
    assert str(caught.value) == (
        "model.name is 'lenet': it needs images; "
        "the data are for regression, whose inputs are numbers (features)"
    )


def test_label_skew_needs_labels(scenario):
    data = scenario.data.model_copy(update={"partition": Dirichlet()})
    with pytest.raises(UserError, match="'dirichlet': it needs class labels"):
        World.prepare(scenario.model_copy(update={"data": data}))


def test_examples_of_another_task_are_refused():
    rows = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="train rows: expected 4 features"):
        Dataset(Regression(4), Examples(rows, rows[:, 0]), Examples(rows, rows[:, 0]))
