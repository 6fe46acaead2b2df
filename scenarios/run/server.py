"""The server of a scenario: its own strategy, and the models that it sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedsim.flower import enter_task, parameters_of, vector_record
from fedsim.records import Transcript
from fedsim.server.strategy import server_strategy
from fedsim.trusted.aggregation import CohortGrid, cohort_reply
from scenarios.run.world import World

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy


def defended_server(world: World) -> Strategy:
    """What a server does with sums, with the defences that it applies itself."""
    scenario = world.scenario
    server = server_strategy(scenario.federation.server_model)
    for place, defence in enumerate(scenario.defences):
        server = defence.on_server(server, seed=scenario.seed, place=place)
    return server


def sent_models(world: World, transcript: Transcript) -> NDArray[np.float32]:
    """(rounds, dim) the model that the server sent in every round: it made them itself, so it has them.

    Nobody stores them. The server's own strategy is given its sums again, and makes the same models, its
    own noise included.
    """
    shape = transcript.aggregates.shape
    if world.scenario.federation.server_model == "fixed":
        return np.broadcast_to(world.start, shape)
    enter_task()
    server, arrays = defended_server(world), vector_record(world.start)
    sent = np.empty(shape, dtype=np.float32)
    for r, total in enumerate(transcript.aggregates):
        sent[r] = parameters_of(arrays)
        (instruction,) = server.configure_train(r + 1, arrays, ConfigRecord(), CohortGrid())
        weight, cohort_size = float(transcript.weights[r]), int(transcript.cohort_sizes[r])
        reply = cohort_reply(instruction, total, weight=weight, cohort_size=cohort_size)
        following, _ = server.aggregate_train(r + 1, [reply])
        # As in Flower's own loop: a strategy that returns nothing keeps its model.
        arrays = arrays if following is None else following
    return sent
