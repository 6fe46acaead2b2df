"""Flower's strategies, each with the memory that a checkpoint needs."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi
from flwr.serverapp.strategy.fedopt import FedOpt

from fedsim.flower import PARAMETERS
from fedsim.server.resuming import Stateless

_MOMENTS, _FIRST, _SECOND = "moments", "first", "second"
_MOMENTUM, _VELOCITY, _MODEL = "momentum", "velocity", "model"


class ServerFedAvg(Stateless, FedAvg):
    """Flower's FedAvg, which remembers nothing between two rounds."""


class ServerFedAvgM(FedAvgM):
    """Flower's FedAvgM, which remembers its velocity and the model that it computed last.

    That model is not always the one it is handed: noise for privacy is added to it on the way.
    """

    def state(self) -> RecordDict:
        """Velocity and model; nothing before the first round."""
        kept = ArrayRecord()
        if self.momentum_vector is not None:
            (velocity,) = self.momentum_vector
            kept[_VELOCITY] = Array(velocity)
        if self.current_arrays is not None:
            kept[_MODEL] = Array(self.current_arrays[PARAMETERS].numpy())
        return RecordDict({_MOMENTUM: kept}) if kept else RecordDict()

    def load_state(self, state: RecordDict) -> None:
        """Restore velocity and model."""
        kept = state.array_records.get(_MOMENTUM, ArrayRecord())
        if _VELOCITY in kept:
            self.momentum_vector = [kept[_VELOCITY].numpy()]
        if _MODEL in kept:
            self.current_arrays = ArrayRecord({PARAMETERS: kept[_MODEL]})


class RemembersMoments(FedOpt):
    """Mixin for Flower's adaptive strategies, which remember the moments of the updates so far."""

    def state(self) -> RecordDict:
        """Both moments; nothing before the first round."""
        if not self.m_t or not self.v_t:
            return RecordDict()
        moments = {_FIRST: self.m_t[PARAMETERS], _SECOND: self.v_t[PARAMETERS]}
        return RecordDict({_MOMENTS: ArrayRecord({name: Array(kept) for name, kept in moments.items()})})

    def load_state(self, state: RecordDict) -> None:
        """Restore both moments."""
        if _MOMENTS in state:
            kept = state.array_records[_MOMENTS]
            self.m_t, self.v_t = ({PARAMETERS: kept[name].numpy()} for name in (_FIRST, _SECOND))


class ServerFedAdam(RemembersMoments, FedAdam):
    """Flower's FedAdam."""


class ServerFedAdagrad(RemembersMoments, FedAdagrad):
    """Flower's FedAdagrad."""


class ServerFedYogi(RemembersMoments, FedYogi):
    """Flower's FedYogi."""
