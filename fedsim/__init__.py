"""The honest world: data, models, clients, schedule, trusted aggregation, server and engines.

Nothing here knows that an attacker exists, and nothing here imports from the packages above
(`analytics`, `attacks`, `scenarios`).

Flower apps may rely on the names that this module exports; everything else is private. They are imported on
first use, so `import fedsim` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsim.secure.client import SecureMod, answer_secure_aggregation, secure_mod
    from fedsim.secure.strategy import SecureAggregation
    from fedsim.tap import Tap

__all__ = ["SecureAggregation", "SecureMod", "Tap", "answer_secure_aggregation", "secure_mod"]

_HOMES = {
    "SecureAggregation": "fedsim.secure.strategy",
    "SecureMod": "fedsim.secure.client",
    "Tap": "fedsim.tap",
    "answer_secure_aggregation": "fedsim.secure.client",
    "secure_mod": "fedsim.secure.client",
}
"""The module that defines each exported name."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
