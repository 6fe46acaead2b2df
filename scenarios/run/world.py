"""A scenario made real: its images, who owns them, who is invited when, and the first model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attacks.inference.knowledge import Auxiliary, Knowledge
from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream
from fedsim.data import DataSource, ImageData, Owned
from fedsim.training.local_training import FlatModel, initial_model
from fedsim.training.local_work import LocalWork
from scenarios.run.scenario import Scenario


@dataclass(frozen=True)
class World:
    """What the apps of a federation are built from; every mistake that data can reveal shows up here.

    `owned` and `schedule` (rounds, clients) say whose images are whose and who is invited when; `model`
    starts with the parameters of round 0, which `start` keeps. `knowledge` is what the server knows beside
    its view. The same scenario gives the same world in every process, and
    making one writes nothing.
    """

    scenario: Scenario
    data: ImageData
    owned: Owned
    schedule: NDArray[np.bool_]
    model: FlatModel
    start: NDArray[np.float32]
    knowledge: Knowledge

    @classmethod
    def prepare(cls, scenario: Scenario) -> World:
        """Load the data, deal it out, draw the schedule and the first model."""
        seed, federation = scenario.seed, scenario.federation
        data = _loaded(scenario.data, seed)
        owned = scenario.data.partition.deal(
            data.train_labels,
            federation.clients,
            scenario.clients.dataset_size,
            stream(seed, Stage.PARTITION),
            data.train_attributes,
        )
        schedule = federation.participation.draw(
            federation.rounds, federation.clients, stream(seed, Stage.SCHEDULE)
        )
        federation.aggregation.check_cohort(int(schedule.sum(axis=1).max()))
        model = FlatModel(
            initial_model(scenario.model, data.image_shape, len(data.class_names), stream(seed, Stage.MODEL))
        )
        world = cls(scenario, data, owned, schedule, model, model.read(), server_knowledge(scenario, data))
        world.check_inference()
        return world

    def check_inference(self) -> None:
        """A `UserError` about an inference attack that this world has nothing for."""
        from scenarios.run.inference.judges import JUDGES

        for attack in self.scenario.attack.inference:
            attack.check(self.knowledge)
            there, wanted = len(JUDGES[attack.kind].companions(self, attack)), max(attack.cohorts, default=0)
            if wanted > there:
                raise UserError(
                    f"attack.inference: {attack.name}: cohorts: {wanted} is too many: {there} clients can be "
                    f"in such a cohort"
                )


def server_knowledge(scenario: Scenario, data: ImageData) -> Knowledge:
    """What the scenario makes public or grants: the recipe of training, and images nobody trains on."""
    wanted, there = scenario.attack.auxiliary_images, len(data.test_labels)
    if wanted > there:
        raise UserError(
            f"attack.auxiliary_images is {wanted}: the part that nobody trains on holds {there} images"
        )
    granted = np.sort(stream(scenario.seed, Stage.AUXILIARY).permutation(there)[:wanted])
    return Knowledge(
        model=scenario.model,
        image_shape=data.image_shape,
        class_names=data.class_names,
        work=LocalWork.model_validate(scenario.clients.model_dump(include=set(LocalWork.model_fields))),
        auxiliary=Auxiliary(
            data.test_images[granted],
            data.test_labels[granted],
            {name: has[granted] for name, has in data.test_attributes.items()},
        ),
    )


@lru_cache(maxsize=1)
def _loaded(source: DataSource, seed: int) -> ImageData:
    """The images, kept for the next world: the points of a sweep mostly share them."""
    return source.load(seed)
