"""Engines: ways to run the server and the devices of a scenario, one class in one file each.

To add an engine, write a subclass of `Runtime` in a file of its own and add it to `ENGINES`. The same seed
gives the same schedule, counts and sums on every engine (sums up to rounding). All modules here are light to
import: the command line lists the engines in its help.
"""

from scenarios.run.engines.given_grid import GivenGrid
from scenarios.run.engines.inline import Inline
from scenarios.run.engines.ray import Ray
from scenarios.run.engines.runtime import Runtime, Serve

ENGINES: dict[str, type[Runtime]] = {engine.name: engine for engine in (Inline, Ray)}
"""The engines that a user can choose by name."""

INLINE = Inline()
"""The default engine, with its default settings."""

__all__ = ["ENGINES", "INLINE", "GivenGrid", "Inline", "Ray", "Runtime", "Serve"]
