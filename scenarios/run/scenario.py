"""A scenario: everything that decides a run, read from one TOML file."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import NonNegativeInt, model_validator
from pydantic_core import PydanticCustomError

from analytics.settings import AnalyticsSettings
from attacks.disaggregation.solvers import unmet_need
from attacks.settings import AttackSettings
from fedsim.core.settings import Settings
from fedsim.core.version import installed_version
from fedsim.data import DataSource
from fedsim.defences import Defences
from fedsim.federation import ClientSettings, FederationSettings
from fedsim.models import Lenet, Model
from fedsim.server.strategies import FedAvg
from fedsim.training.device import EngineSettings
from scenarios.run.checking import checked
from scenarios.run.library import LIBRARY, check_kind, found_in_library, read_toml
from scenarios.run.overrides import Overrides, change_all, read_overrides

__all__ = ["LIBRARY", "Scenario", "find_scenario", "load_scenario", "parse_scenario", "read_toml"]


class Scenario(Settings):
    """The sections of a scenario file.

    Equal scenarios give the same run, byte for byte, with two exceptions: the noise of `private` counts, and
    columns on which a solver reaches its time limit.
    """

    title: str
    seed: NonNegativeInt = 0
    data: DataSource
    model: Model = Lenet()
    clients: ClientSettings = ClientSettings()
    federation: FederationSettings
    engine: EngineSettings = EngineSettings()
    defences: Defences = ()
    analytics: AnalyticsSettings = AnalyticsSettings()
    attack: AttackSettings = AttackSettings()

    @model_validator(mode="after")
    def _solver_gets_what_it_needs(self) -> Self:
        need = unmet_need(self.attack.solver, has_counts=self.analytics.publishes_counts)
        if need is not None:
            raise PydanticCustomError("contract", "attack.solver: {need}", {"need": need})
        return self

    @model_validator(mode="after")
    def _strategy_is_used(self) -> Self:
        federation = self.federation
        if federation.server_model == "fixed" and federation.strategy != FedAvg():
            raise PydanticCustomError(
                "strategy",
                "federation.strategy is {name}, but a server with a fixed model applies none: "
                "set federation.server_model to updated",
                {"name": federation.strategy.name},
            )
        return self

    @model_validator(mode="after")
    def _control_variates_move(self) -> Self:
        if self.clients.algorithm == "scaffold" and self.federation.server_model == "fixed":
            raise PydanticCustomError(
                "contract",
                "clients.algorithm is scaffold, which corrects steps towards a model that learns: "
                "set federation.server_model to updated",
            )
        return self

    @model_validator(mode="after")
    def _noise_fits_the_mean(self) -> Self:
        is_plain = self.federation.strategy == FedAvg() and self.clients.weighting == "equal"
        is_plain = is_plain and self.clients.algorithm == "fedavg"
        if not is_plain and any(defence.needs_plain_mean for defence in self.defences):
            raise PydanticCustomError(
                "contract",
                "defences: noise on the model is scaled for plain means: its ε holds only with "
                "federation.strategy fedavg, clients.weighting equal and clients.algorithm fedavg; "
                "or put the noise on the sum",
            )
        return self

    def changed(self, overrides: Overrides) -> Scenario:
        """The same scenario with other settings, as in `load_scenario`."""
        return load_scenario(self, overrides)

    def to_toml(self) -> str:
        """Every setting with its default written out, and the versions of the main packages."""
        others = ", ".join(f"{name} {version(name)}" for name in ("flwr", "torch", "numpy", "scipy"))
        return f"# fedsim {installed_version()}, {others}\n" + tomli_w.dumps(
            self.model_dump(mode="json", exclude_none=True)
        )


def find_scenario(name: str) -> Path:
    """The file at that path, or the library's scenario of that name."""
    return found_in_library(name, "scenario")


def load_scenario(source: str | Path | Mapping[str, Any] | Scenario, overrides: Overrides = ()) -> Scenario:
    """Read a scenario and change some of its settings; any mistake is a `UserError` of one line.

    `source` is a file, a name from the library, a mapping with the sections of a scenario, or a scenario.
    `overrides` are values by dotted key, such as `{"clients.local_epochs": 8}`, or texts like
    `clients.local_epochs=8`.
    """
    match source:
        case Scenario():
            said, content = "scenario", source.model_dump(mode="json", exclude_none=True)
        case str() | Path():
            file = find_scenario(source) if isinstance(source, str) else source
            said, content = str(file), read_toml(file)
            check_kind(file, content, "scenario")
        case _:
            said, content = "scenario", copy.deepcopy(dict(source))
    changes = read_overrides(overrides)
    change_all(content, changes)
    return checked(Scenario, content, said, changes)


def parse_scenario(text: str) -> Scenario:
    """The scenario whose `to_toml` gave this text."""
    return checked(Scenario, tomllib.loads(text), "scenario")
