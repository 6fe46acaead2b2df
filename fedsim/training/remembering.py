"""Local training that remembers something from one of its rounds to the next: SCAFFOLD and FedBN."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedsim.core.errors import UserError
from fedsim.models.normalisation import local_entries
from fedsim.training.local_work import LocalWork

Vector = NDArray[np.float32]
Train = Callable[[Vector, Vector | None], Vector]
"""The local training of a client in a round: from a model (dim,), and a vector that is added to the gradient
of every step, to the update (dim,)."""


class Remembering(ABC):
    """What a device does with the vector that it is sent, and with the vector that it kept."""

    @abstractmethod
    def answer(
        self, sent: Vector, kept: Vector | None, train: Train, *, path: float
    ) -> tuple[Vector, Vector]:
        """The vector that the device adds to a sum, and the vector that it keeps for its next round.

        `kept` is None in a device's first round; `path` is the number of its steps times their size.
        """


class Scaffold(Remembering):
    """SCAFFOLD (Karimireddy et al. 2020, option II): control variates take the clients' drift out of steps.

    The server sends its model x and its control variate c, one after the other. A client with the control
    variate c_i adds c − c_i to every gradient. It sends its update y − x and c_i⁺ − c_i, where
    c_i⁺ = c_i − c + (x − y)/path. Only the first `learnt` entries of a model have control variates: running
    statistics have no gradient.
    """

    def __init__(self, learnt: int) -> None:
        self._learnt = learnt

    def answer(
        self, sent: Vector, kept: Vector | None, train: Train, *, path: float
    ) -> tuple[Vector, Vector]:
        """Both differences, (2 dim,), and the client's new control variate, (dim,)."""
        start, control = np.split(sent, 2)
        own = np.zeros_like(control) if kept is None else kept
        update = train(start, control - own)
        change = -control - update / np.float32(path)
        change[self._learnt :] = 0
        return np.concatenate((update, change)), own + change


class FedBN(Remembering):
    """FedBN (Li et al. 2021): `local` entries (dim,) of the model never leave the device, and so never change
    on the server."""

    def __init__(self, local: NDArray[np.bool_]) -> None:
        self._local = local

    def answer(
        self, sent: Vector, kept: Vector | None, train: Train, *, path: float
    ) -> tuple[Vector, Vector]:
        """The update (dim,), zero in local entries, and the local entries of the device's model."""
        start = sent.copy()
        if kept is not None:
            start[self._local] = kept
        update = train(start, None)
        kept = start[self._local] + update[self._local]
        update[self._local] = 0
        return update, kept


def remembering(module: nn.Module, work: LocalWork) -> Remembering | None:
    """How clients use what they kept from their latest round; None if they keep nothing."""
    local = local_entries(module)
    if work.algorithm == "fedavg":
        return FedBN(local) if local.any() else None
    if local.any():
        raise UserError(
            "clients.algorithm is scaffold, which corrects parameters that all clients share: expected "
            "another model.statistics than fedbn"
        )
    return Scaffold(learnt=sum(p.numel() for p in module.parameters()))
