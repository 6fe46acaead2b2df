"""Flower's wrapper for central differential privacy, with noise from our streams."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, Strategy

from fedsim.core.seeds import Stage, stream
from fedsim.defences.flower_mods import global_generator
from fedsim.flower import cohort_size


class NoisyModel(DifferentialPrivacyClientSideFixedClipping):
    """Adds noise to every model that the strategy inside makes of a sum; devices have clipped already."""

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
        """The next model, with noise that depends on the seed, the defence's place and the round alone."""
        replies = list(replies)
        # One client moves a mean by no more than the norm over the number of its round's clients.
        self.num_sampled_clients = max(1, *(cohort_size(reply) for reply in replies))
        with global_generator(stream(self._seed, Stage.DEFENCE, self._place, server_round - 1)):
            return super().aggregate_train(server_round, replies)
