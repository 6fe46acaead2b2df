"""The foreign app under secure sums, on a grid in this process."""

import logging
import random

import pytest

from fedsim import answer_secure_aggregation, secure_mod
from fedsim.flower import enter_local_task, enter_task
from fedsim.grids.inline import InlineGrid
from tests.helpers.foreign_app import examples_of, foreign_app, initial_arrays, own_update

CLIENTS = 8


def secured_grid(clients=CLIENTS, mod=secure_mod, mods=(), **kwargs):
    """`mods` stand inside the mod of secure sums."""
    enter_task()
    app = foreign_app(mods=[mod, *mods], **kwargs)
    return InlineGrid(answer_secure_aggregation(app, mod), clients, faults="reply")


def start(strategy, grid=None, rounds=3, arrays=None, seed=3, **kwargs):
    """Flower samples with the global generator."""
    random.seed(seed)
    return strategy.start(grid or secured_grid(), arrays or initial_arrays(), num_rounds=rounds, **kwargs)


def weighted_mean(name, clients, weights=examples_of):
    """The mean update of an array over clients."""
    total = sum(weights(k) for k in clients)
    return sum(weights(k) * own_update(k, name) for k in clients) / total


@pytest.fixture
def warnings(monkeypatch, caplog):
    """What the strategy logs."""
    enter_local_task()
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.INFO)
    return caplog
