"""The ε of repeated Gaussian noise, by Flower's accountant."""

from __future__ import annotations


def gaussian_epsilon(noise_multiplier: float, releases: int, delta: float) -> float:
    """ε at `delta` of this number of releases, each with noise of `noise_multiplier` times the sensitivity.

    Without amplification by sampling: it assumes that nobody knows the participation of a client, and to find
    that out is the aim of the attack.
    """
    from flwr.serverapp import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        RdpAccountant,
        SamplingMethod,
    )

    if releases == 0:
        return 0.0
    config = PrivacyConfig(
        target_delta=delta,
        population_size=1,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
    )
    accountant = RdpAccountant(config)
    accountant.compose(GaussianPrivacyEvent(noise_multiplier, sample_size=1, population_size=1), releases)
    return float(accountant.get_epsilon(delta))
