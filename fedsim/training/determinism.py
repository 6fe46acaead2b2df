"""Random numbers inside networks (dropout), and checks that an update comes out the same every time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream_seed

_ONE_UPDATE_IN = 8
"""One update of this number is computed twice: an eighth more work."""


@contextmanager
def layers_draw(seed: int, client: int, round_index: int) -> Iterator[None]:
    """In the block, layers draw the random numbers of this client and round; torch's state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, Stage.DROPOUT, client, round_index) % 2**63)
        yield


def draws(module: nn.Module) -> bool:
    """Whether a module of the library draws random numbers when it is trained."""
    return any(isinstance(layer, nn.Dropout) and layer.p for layer in module.modules())


@contextmanager
def without_other_random_numbers() -> Iterator[None]:
    """A `UserError` if the block draws from the global generator of NumPy or Python."""
    before = _generator_states()
    yield
    drawn = [name for name, state in _generator_states().items() if state != before[name]]
    if drawn:
        raise UserError(
            f"model.factory: the network drew random numbers from {drawn[0]}'s generator during training, "
            "which is not the client's: use torch's generator"
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
        "NumPy": (np.asarray(keys).tobytes(), *position),
        "Python": random.getstate(),
    }
