"""A scenario prepared to run: its examples, their owners, the schedule and the first model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attacks.inference.knowledge import Auxiliary, Knowledge
from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream
from fedsim.data import Dataset, DataSource, Owned
from fedsim.training.device import device_type, find_device
from fedsim.training.local_training import FlatModel, check_batches, initial_model
from fedsim.training.local_work import LocalWork
from fedsim.training.remembering import remembering
from scenarios.run.inference.judges import JUDGES
from scenarios.run.scenario import Scenario


@dataclass(frozen=True)
class World:
    """Everything that the apps of a federation are built from.

    `owned` holds the positions of each client's training examples, `schedule` (rounds, clients) the invited
    clients of each round. `model` starts with the parameters of round 0. `start` is the vector that the
    server sends first: these parameters, and with SCAFFOLD its control variate, which is zero. `knowledge` is
    what the server knows beside its view. Preparing a world finds every mistake that only the data can
    reveal. The same scenario gives the same world in every process, and preparing it writes nothing.
    """

    scenario: Scenario
    data: Dataset
    owned: Owned
    schedule: NDArray[np.bool_]
    model: FlatModel
    start: NDArray[np.float32]
    knowledge: Knowledge

    @classmethod
    def prepare(cls, scenario: Scenario) -> World:
        """Load the data, divide them among the clients, draw the schedule and the first model."""
        seed, federation = scenario.seed, scenario.federation
        if scenario.data.task_type is not None:
            scenario.model.check(scenario.data.task_type)
        find_device(scenario.engine.device)
        data = _loaded(scenario.data, seed)
        owned = scenario.data.partition.deal(
            data.train, federation.clients, scenario.clients.dataset_size, stream(seed, Stage.PARTITION)
        )
        schedule = federation.participation.draw(
            federation.rounds, federation.clients, stream(seed, Stage.SCHEDULE)
        )
        federation.aggregation.check_cohort(int(schedule.sum(axis=1).max()))
        model = FlatModel(initial_model(scenario.model, data.task, stream(seed, Stage.MODEL)))
        check_batches(model.module, owned, scenario.clients)
        remembering(model.module, scenario.clients)
        start = np.zeros(scenario.clients.vectors * model.dim, dtype=np.float32)
        start[: model.dim] = model.read()
        world = cls(scenario, data, owned, schedule, model, start, server_knowledge(scenario, data))
        world.check_inference()
        return world

    @property
    def layer_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors that a sum concatenates."""
        return self.model.layer_shapes * self.scenario.clients.vectors

    def check_inference(self) -> None:
        """A `UserError` about an inference attack that cannot work on this data, model or recipe."""
        for attack in self.scenario.attack.inference:
            attack.check(self.knowledge)
            there = len(JUDGES[attack.kind].cohort_candidates(self, attack))
            wanted = max(attack.cohorts, default=0)
            if wanted > there:
                raise UserError(
                    f"attack.inference: {attack.name}: cohorts: {wanted} is too many: {there} clients can be "
                    f"in such a cohort"
                )


def server_knowledge(scenario: Scenario, data: Dataset) -> Knowledge:
    """What the scenario makes public or grants: the training recipe, and examples that nobody trains on."""
    wanted, there = scenario.attack.auxiliary_images, len(data.test)
    if wanted > there:
        raise UserError(
            f"attack.auxiliary_images is {wanted}: "
            f"the part that nobody trains on holds {there} {data.task.noun}"
        )
    auxiliary = data.test[np.sort(stream(scenario.seed, Stage.AUXILIARY).permutation(there)[:wanted])]
    work = LocalWork.model_validate(scenario.clients.model_dump(include=set(LocalWork.model_fields)))
    return Knowledge(
        model=scenario.model,
        task=data.task,
        # Inference knows plain local training: in a client's first round SCAFFOLD's is the same.
        work=work.model_copy(update={"algorithm": "fedavg"}),
        auxiliary=Auxiliary(auxiliary.inputs, auxiliary.targets, auxiliary.attributes),
        device=device_type(scenario.engine.device),
    )


@lru_cache(maxsize=1)
def _loaded(source: DataSource, seed: int) -> Dataset:
    """The data set, kept for the next world: the points of a sweep mostly share it."""
    return source.load(seed)
