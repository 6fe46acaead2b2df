"""The strategies of a scenario's server, and the models that it sent."""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from analytics.collection import CountCollector
from analytics.counters import ENROL_QUERY
from attacks.observing import ObservingStrategy
from fedsim.devices.client import IDENTIFY
from fedsim.flower import enter_task, parameters_of, vector_record
from fedsim.records import Transcript, TranscriptWriter
from fedsim.server.scaffold import ControlVariates
from fedsim.server.strategy import server_strategy
from fedsim.trusted.aggregation import TrustedAggregation
from fedsim.trusted.cohort import CohortGrid, cohort_reply
from fedsim.trusted.masking.enrolment import ENROL, REGISTER
from fedsim.trusted.truth import TruthRecorder
from scenarios.run.world import World

INTRODUCTIONS = frozenset({IDENTIFY, ENROL_QUERY, f"query.{ENROL}", f"query.{REGISTER}"})
"""Types of the messages in which a server gets to know its devices, before its first round."""


def build_strategy(world: World, transcript: TranscriptWriter, truth: TruthRecorder) -> CountCollector:
    """All strategies of a run, from the inside out.

    The server's own strategy learns from sums. The tap notes every sum that reaches it. Trusted aggregation
    lets nothing but sums through. Telemetry stands beside all that and asks devices for their counts.
    """
    scenario, federation = world.scenario, world.scenario.federation
    server = build_server(world)
    observed = ObservingStrategy(server, transcript)
    trusted = TrustedAggregation(
        observed,
        schedule=world.schedule,
        aggregation=federation.aggregation,
        truth=truth,
        defences=scenario.defences,
        seed=scenario.seed,
    )
    questions = scenario.analytics.questions(
        rounds=federation.rounds, clients=federation.clients, seed=scenario.seed
    )
    return CountCollector(trusted, questions)


def build_server(world: World) -> Strategy:
    """The server's own strategy, with the defences that the server applies itself."""
    scenario = world.scenario
    federation = scenario.federation
    server = server_strategy(federation.server_model, federation.strategy, scenario.clients.weighting)
    for place, defence in enumerate(scenario.defences):
        server = defence.on_server(server, seed=scenario.seed, place=place)
    if scenario.clients.algorithm == "scaffold":
        return ControlVariates(server, federation.clients)
    return server


def sent_models(world: World, transcript: Transcript) -> NDArray[np.float32]:
    """(rounds, dim) the model that the server sent in every round: an attacker who is the server has them.

    No file stores them. The server's own strategy gets its sums again and computes the same models, its own
    noise included.
    """
    shape = transcript.aggregates.shape
    if world.scenario.federation.server_model == "fixed":
        return np.broadcast_to(world.start, shape)
    enter_task()
    server, arrays = build_server(world), vector_record(world.start)
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
