"""Flower's wrapper for central differential privacy, with noise from our streams."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, Strategy

from fedsim.core.seeds import Stage, stream
from fedsim.defences.flower_mods import global_generator
from fedsim.flower import cohort_size
from fedsim.server.resuming import resumable


class NoisyModel(DifferentialPrivacyClientSideFixedClipping):
    """Adds noise to every model that the strategy inside computes; devices have clipped already.

    The noise of a round depends on the seed, the defence's position and the round, not on earlier noise: the
    wrapper remembers nothing between two rounds.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        noise_multiplier: float,
        norm: float,
        seed: int,
        place: int,
    ) -> None:
        super().__init__(strategy, noise_multiplier, norm, num_sampled_clients=1)
        self._seed, self._place = seed, place

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, with noise."""
        replies = list(replies)
        # One client moves the mean by at most the norm divided by the number of clients in the round.
        self.num_sampled_clients = max(1, *(cohort_size(reply) for reply in replies))
        with global_generator(stream(self._seed, Stage.DEFENCE, self._place, server_round - 1)):
            return super().aggregate_train(server_round, replies)

    def state(self) -> RecordDict:
        """What the strategy inside remembers."""
        return resumable(self.strategy).state()

    def load_state(self, state: RecordDict) -> None:
        """Restore the strategy inside."""
        resumable(self.strategy).load_state(state)
