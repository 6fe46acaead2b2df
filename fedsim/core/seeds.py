"""Random streams by address: every stage, client and round has its own stream.

A stream depends on the scenario's seed and its address only, never on what ran before it. So changing the
attack does not change the training, and engines may run clients in any order.

No stream tells anything about another. A slow one-way function (scrypt) turns the seed into a secret, and
every stream starts from a keyed hash (BLAKE2b) of its address under that secret. An attack that is handed a
stream, or that sees the work of another one (the first model, the sizes of cohorts), cannot compute the
schedule from it. It can only guess the seed, and pays one scrypt for every guess.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from functools import lru_cache
from threading import Lock, Thread

import numpy as np

_COST = 2**17
"""Scrypt's work factor: about half a second, and 128 MiB, for every seed that is tried."""
_SALT = b"fedsim: streams of a scenario"


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
    DROPOUT = 10
    TELEMETRY = 20
    RELEASE = 21
    DEFENCE = 22


def stream(seed: int, stage: Stage, *address: int) -> np.random.Generator:
    """The generator at an address, such as `stream(seed, Stage.CLIENT, client, round)`."""
    return np.random.default_rng(stream_seed(seed, stage, *address))


def stream_seed(seed: int, stage: Stage, *address: int) -> int:
    """The 128-bit number that the generator at an address starts from; it says nothing about any other."""
    place = ",".join(str(int(part)) for part in (stage, *address)).encode()
    digest = hashlib.blake2b(place, key=_secret(seed), digest_size=16).digest()
    return int.from_bytes(digest, "big")


_one_at_a_time = Lock()


def prepare_streams(seed: int) -> None:
    """Compute the secret of a seed in a thread, beside other work; whoever needs a stream waits for it."""
    Thread(target=_secret, args=(seed,), daemon=True).start()


def _secret(seed: int) -> bytes:
    """(32 bytes) what all streams of a scenario are derived from."""
    with _one_at_a_time:
        return _derived(seed)


@lru_cache(maxsize=1024)
def _derived(seed: int) -> bytes:
    return hashlib.scrypt(str(seed).encode(), salt=_SALT, n=_COST, r=8, p=1, maxmem=2**28, dklen=32)
