"""A scenario made real: its images, who owns them, who is invited when, and the first model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsim.data import DataSource, ImageData, Owned
from fedsim.seeds import Stage, stream
from fedsim.training import FlatModel, initial_model
from scenarios.scenario import Scenario


@dataclass(frozen=True)
class World:
    """What the apps of a federation are built from; every mistake that data can reveal shows up here.

    `owned` and `schedule` (rounds, clients) say whose images are whose and who is invited when; `model`
    starts with the parameters of round 0. The same scenario gives the same world in every process, and
    making one writes nothing.
    """

    scenario: Scenario
    data: ImageData
    owned: Owned
    schedule: NDArray[np.bool_]
    model: FlatModel

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
        )
        schedule = federation.participation.draw(
            federation.rounds, federation.clients, stream(seed, Stage.SCHEDULE)
        )
        federation.aggregation.check_cohort(int(schedule.sum(axis=1).max()))
        model = initial_model(
            scenario.model, data.image_shape, len(data.class_names), stream(seed, Stage.MODEL)
        )
        return cls(scenario, data, owned, schedule, FlatModel(model))


@lru_cache(maxsize=1)
def _loaded(source: DataSource, seed: int) -> ImageData:
    """The images, kept for the next world: the points of a sweep mostly share them."""
    return source.load(seed)
