"""Random streams by address: every stage, client and round has its own stream.

A stream depends on the scenario's seed and its address only, never on what ran before it, so that
changing the attack does not change the training, and engines may run clients in any order.
"""

from enum import IntEnum

import numpy as np


class Stage(IntEnum):
    """The first part of an address. Values are part of the file format: renumbering changes every run."""

    DATA = 1
    PARTITION = 2
    MODEL = 3
    SCHEDULE = 4
    CLIENT = 5
    ATTACK = 6
    DEVICE = 7
    AUXILIARY = 8
    SCORING = 9
    TELEMETRY = 20
    RELEASE = 21
    DEFENCE = 22


def stream(seed: int, stage: Stage, *address: int) -> np.random.Generator:
    """The generator at an address, such as `stream(seed, Stage.CLIENT, client, round)`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(stage), *address)))
