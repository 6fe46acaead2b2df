"""Checks that a network of somebody else computes the same update every time; if not, it cannot be used."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedsim.core.errors import UserError

_ONE_UPDATE_IN = 8
"""One update of this number is computed twice: an eighth more work."""


@contextmanager
def without_random_numbers() -> Iterator[None]:
    """A `UserError` if the block draws from a global generator of torch, NumPy or Python."""
    before = _generator_states()
    yield
    drawn = [name for name, state in _generator_states().items() if state != before[name]]
    if drawn:
        raise UserError(
            f"model.factory: the network drew random numbers from {drawn[0]}'s generator during training "
            "(dropout?), so nobody could compute its updates again"
        )


def is_checked_twice(client: int, round_index: int) -> bool:
    """Whether this update is one of those that are computed twice. Every client's turn comes."""
    return (client + round_index) % _ONE_UPDATE_IN == 0


def check_same_update(first: np.ndarray, second: np.ndarray, *, client: int, round_index: int) -> None:
    """A `UserError` if two computations of one update differ in any bit."""
    if first.tobytes() != second.tobytes():
        raise UserError(
            f"model.factory: the network gave two updates for client {client} in round {round_index} from "
            "the same model and examples: it draws random numbers or keeps state beside its parameters"
        )


def _generator_states() -> dict[str, object]:
    # The old generator, because a network of somebody else may use it.
    _, keys, *position = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": (np.asarray(keys).tobytes(), *position),
        "Python": random.getstate(),
    }
