"""Resuming the server: a strategy that loads a state makes the models that the one before would have made."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, Strategy

from fedsim.core.settings import members
from fedsim.defences import CentralDp
from fedsim.flower import enter_local_task, parameters_of, records_from_bytes, records_to_bytes
from fedsim.flower import vector_record as record
from fedsim.server import strategies
from fedsim.server.resuming import NotResumableError, merged, resumable
from fedsim.server.strategy import MeanFromSum, server_strategy
from fedsim.trusted.cohort import CohortGrid, cohort_reply

ROUNDS, KILLED_AFTER, DIM, CLIENTS = 6, 3, 5, 4
SUMS = np.random.default_rng(0).normal(size=(ROUNDS, DIM)).astype(np.float32)
START = np.ones(DIM, dtype=np.float32)


MOMENTUM = strategies.FedAvgM(server_learning_rate=0.5, server_momentum=0.9)


def with_noise(strategy):
    defence = CentralDp(norm=1.0, noise_multiplier=0.5, noise_on="model")
    return defence.on_server(strategy, seed=7, place=0)


def fedadam():
    return server_strategy("updated", strategies.FedAdam())


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "fixed": lambda: server_strategy("fixed"),
    "updated": lambda: server_strategy("updated"),
    "noisy model": lambda: with_noise(server_strategy("updated")),
    "noisy fedadam": lambda: with_noise(fedadam()),
    "noisy fedavgm": lambda: with_noise(server_strategy("updated", MOMENTUM)),
    "momentum": lambda: server_strategy("updated", MOMENTUM),
    **{
        name: partial(server_strategy, "updated", member())
        for name, member in members(strategies.AnyStrategy).items()
    },
}


def models(strategy, model, rounds):
    """The model after each of these rounds (counted from 0)."""
    enter_local_task()
    made = []
    for r in rounds:
        arrays = record(model)
        (instruction,) = strategy.configure_train(r + 1, arrays, ConfigRecord(), CohortGrid())
        reply = cohort_reply(instruction, SUMS[r], weight=8.0, cohort_size=CLIENTS)
        following, _ = strategy.aggregate_train(r + 1, [reply])
        model = model if following is None else parameters_of(following)
        made.append(model)
    return made


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_that_loads_a_state_continues_as_the_one_that_gave_it(name):
    build = STRATEGIES[name]
    whole = models(build(), START, range(ROUNDS))
    killed, resumed = build(), build()
    before = models(killed, START, range(KILLED_AFTER))
    saved = records_to_bytes(resumable(killed).state())
    models(killed, before[-1], range(KILLED_AFTER, ROUNDS))  # What it does later does not change the state.
    resumable(resumed).load_state(records_from_bytes(saved))
    np.testing.assert_array_equal([*before, *models(resumed, before[-1], range(KILLED_AFTER, ROUNDS))], whole)


def test_the_moments_of_fedadam_matter():
    """Without the state the test above would fail, so it can."""
    whole = models(fedadam(), START, range(ROUNDS))
    forgetful = models(fedadam(), whole[KILLED_AFTER - 1], range(KILLED_AFTER, ROUNDS))
    assert not np.allclose(forgetful[0], whole[KILLED_AFTER])


@pytest.mark.parametrize("wrap", [lambda s: s, MeanFromSum, lambda s: with_noise(MeanFromSum(s))])
def test_a_strategy_that_says_nothing_about_its_state_is_refused(wrap):
    strategy = wrap(FedAdam(min_train_nodes=1, min_available_nodes=1))
    with pytest.raises(
        NotResumableError, match=r"the server strategy FedAdam .*state\(\) and load_state\(\)"
    ):
        resumable(strategy).state()


def test_two_parts_cannot_store_their_state_under_one_key():
    with pytest.raises(ValueError, match="'moments'"):
        merged(RecordDict({"moments": ConfigRecord()}), RecordDict({"moments": ConfigRecord()}))
