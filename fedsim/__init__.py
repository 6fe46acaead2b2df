"""The honest world: data, models, clients, schedule, trusted aggregation, server and engines.

Nothing here knows that an attacker exists, and nothing here imports from the packages above
(`analytics`, `attacks`, `scenarios`).

Programs may rely on the names that this module exports (docs/python.md); everything else is private. They are
imported on first use, so `import fedsim` is cheap.
"""

from __future__ import annotations

from importlib import import_module

__all__ = [
    "DefenceMod",
    "ExposureMonitor",
    "RunFailedError",
    "Scenario",
    "SecureAggregation",
    "SecureMod",
    "Tap",
    "UserError",
    "answer_secure_aggregation",
    "attack",
    "audit",
    "defence_mod",
    "disaggregate",
    "evaluate",
    "forecast",
    "load_run",
    "load_scenario",
    "reproduce",
    "run",
    "secure_mod",
    "sweep",
]

_HOMES = {
    "DefenceMod": "fedsim.defences.client_mod",
    "ExposureMonitor": "fedsim.tap",
    "RunFailedError": "fedsim.core.errors",
    "Scenario": "scenarios.run.scenario",
    "SecureAggregation": "fedsim.secure.strategy",
    "SecureMod": "fedsim.secure.client",
    "Tap": "fedsim.tap",
    "UserError": "fedsim.core.errors",
    "answer_secure_aggregation": "fedsim.secure.client",
    "attack": "scenarios.run.api",
    "audit": "scenarios.audit.api",
    "defence_mod": "fedsim.defences.client_mod",
    "disaggregate": "scenarios.disaggregation",
    "evaluate": "scenarios.evaluate.api",
    "forecast": "scenarios.forecast.api",
    "load_run": "scenarios.run.api",
    "load_scenario": "scenarios.run.scenario",
    "reproduce": "scenarios.reproduction.api",
    "run": "scenarios.run.api",
    "secure_mod": "fedsim.secure.client",
    "sweep": "scenarios.sweep.api",
}
"""The module that defines each exported name, also above this package; `__init__.pyi` has their types."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
