"""The honest run: makes a scenario real as Flower apps, and leaves the public files and the truth."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from analytics.collection import CountCollector
from analytics.counters import answer_count_queries, counting_mod
from attacks.observing import ObservingStrategy
from fedsim.aggregation import TrustedAggregation
from fedsim.client import build_client_app
from fedsim.data import ImageData, partition_iid
from fedsim.engines.inline import run_inline
from fedsim.flower import parameters_of, vector_record
from fedsim.progress import Progress, silent
from fedsim.records import TranscriptWriter
from fedsim.seeds import Stage, stream
from fedsim.server import server_strategy
from fedsim.training import FlatModel, accuracy, as_input, initial_model
from fedsim.truth import TruthRecorder
from scenarios.run_directory import RunDirectory
from scenarios.scenario import Scenario


@dataclass(frozen=True)
class World:
    """A scenario made real, with nothing written yet: every mistake that data can reveal shows up here.

    `owned` (clients, dataset_size) and `schedule` (rounds, clients) say whose images are whose and who is
    invited when; `model` starts with the parameters of round 0.
    """

    scenario: Scenario
    data: ImageData
    owned: NDArray[np.int64]
    schedule: NDArray[np.bool_]
    model: FlatModel

    @classmethod
    def prepare(cls, scenario: Scenario) -> World:
        """Load the data, deal it out, draw the schedule and the first model."""
        seed, federation = scenario.seed, scenario.federation
        data = scenario.data.load(seed)
        owned = partition_iid(
            len(data.train_labels),
            federation.clients,
            scenario.clients.dataset_size,
            stream(seed, Stage.PARTITION),
        )
        schedule = federation.participation.draw(
            federation.rounds, federation.clients, stream(seed, Stage.SCHEDULE)
        )
        model = initial_model(
            scenario.model, data.image_shape, len(data.class_names), stream(seed, Stage.MODEL)
        )
        return cls(scenario, data, owned, schedule, FlatModel(model))


@dataclass(frozen=True)
class Simulation:
    """What is worth telling about the honest run itself."""

    seconds: float
    test_accuracy: float
    """Of the model that the server holds after the last round; a fixed model is still the first one."""


def simulate(world: World, directory: RunDirectory, progress: Progress = silent) -> Simulation:
    """Run the federation; leave transcript, counts and truth in the directory."""
    scenario, federation = world.scenario, world.scenario.federation
    started = time.perf_counter()
    client_app = build_client_app(
        data=world.data,
        owned=world.owned,
        model=scenario.model,
        settings=scenario.clients,
        seed=scenario.seed,
        mods=[counting_mod],
    )
    answer_count_queries(client_app)
    truth = TruthRecorder(federation.rounds, federation.clients, world.model.dim)

    with TranscriptWriter(directory.transcript, federation.rounds, world.model.dim) as transcript:
        # From the inside out: the server's own strategy, the tap on it, the wall that lets only sums
        # through, and telemetry beside all that.
        observing = ObservingStrategy(server_strategy(federation.server_model), transcript)
        trusted = TrustedAggregation(
            observing, schedule=world.schedule, aggregation=federation.aggregation, truth=truth
        )
        collector = CountCollector(trusted, window=scenario.analytics.window, rounds=federation.rounds)
        server_app = ServerApp()

        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            def on_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
                world.model.load(parameters_of(arrays))
                progress(server_round, federation.rounds)
                return None

            collector.start(
                grid, vector_record(world.model.read()), num_rounds=federation.rounds, evaluate_fn=on_round
            )

        run_inline(server_app, client_app, clients=federation.clients)

    collector.report().write_csv(directory.counts)
    truth.truth().save(directory.truth)
    seconds = time.perf_counter() - started
    return Simulation(seconds, _test_accuracy(world))


def _test_accuracy(world: World) -> float:
    images, labels = as_input(world.data.test_images), torch.from_numpy(world.data.test_labels)
    return accuracy(world.model.module.eval(), images, labels)
