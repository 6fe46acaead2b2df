"""A scenario: everything that decides a run, read from one TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import NonNegativeInt, model_validator
from pydantic_core import PydanticCustomError

from analytics.settings import AnalyticsSettings
from attacks.disaggregation.solvers import unmet_need
from attacks.settings import AttackSettings
from fedsim.core.errors import UserError
from fedsim.core.files import parsing, reading
from fedsim.core.settings import Settings
from fedsim.core.version import installed_version
from fedsim.data import DataSource
from fedsim.defences import Defences
from fedsim.federation import ClientSettings, FederationSettings
from fedsim.models import Lenet, Model
from fedsim.server.strategies import FedAvg
from scenarios.run.checking import checked

LIBRARY = Path(__file__).parents[1] / "library"


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
    def _noise_fits_the_mean(self) -> Self:
        is_plain = self.federation.strategy == FedAvg() and self.clients.weighting == "equal"
        if not is_plain and any(defence.needs_plain_mean for defence in self.defences):
            raise PydanticCustomError(
                "contract",
                "defences: noise on the model is scaled for plain means: its ε holds only with "
                "federation.strategy fedavg and clients.weighting equal; or put the noise on the sum",
            )
        return self

    def to_toml(self) -> str:
        """Every setting with its default written out, and the versions of the main packages."""
        others = ", ".join(f"{name} {version(name)}" for name in ("flwr", "torch", "numpy", "scipy"))
        return f"# fedsim {installed_version()}, {others}\n" + tomli_w.dumps(
            self.model_dump(mode="json", exclude_none=True)
        )


def find_scenario(name: str) -> Path:
    """The file at that path, or the library's scenario of that name."""
    if Path(name).exists():
        return Path(name)
    library = {path.stem: path for path in sorted(LIBRARY.glob("*.toml"))}
    if name not in library:
        raise UserError(f"{name}: no such file, and no such scenario in the library ({', '.join(library)})")
    return library[name]


def load_scenario(file: Path, overrides: Iterable[str] = ()) -> Scenario:
    """Read a scenario file and apply `key=value` overrides; any mistake is a `UserError` of one line."""
    content = read_toml(file)
    for override in overrides:
        apply(content, override)
    return checked(Scenario, content, file)


def parse_scenario(text: str) -> Scenario:
    """The scenario whose `to_toml` gave this text."""
    return checked(Scenario, tomllib.loads(text), "scenario")


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file, without further checks."""
    with reading(file, "a TOML file"):
        return tomllib.loads(file.read_text(encoding="utf-8"))


def apply(content: dict[str, Any], override: str) -> None:
    """Apply an override `KEY=VALUE` to the content of a file."""
    key, equals, text = override.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UserError(f"--set {override}: expected KEY=VALUE, such as clients.local_epochs=8")
    put(content, key.strip(), toml_value(text), said=f"--set {override}")


def put(content: dict[str, Any], key: str, value: Any, *, said: str) -> None:
    """Set one dotted key in the content of a file. A bare name is expanded to a table with that `name`.

    If the key leads through a value that is no table, the `UserError` begins with `said`.
    """
    *sections, last = key.split(".")
    table: Any = content
    for section in sections:
        table = _below(table, section, said)
    if isinstance(table, list):
        raise UserError(f"{said}: {last} is an entry, expected {key}.KEY=VALUE")
    table[last] = value


def _below(table: Any, section: str, said: str) -> Any:
    """The section of that name, or of that number in a list of sections."""
    if isinstance(table, list):
        if not section.isdecimal() or int(section) >= len(table):
            raise UserError(f"{said}: {section} is not one of 0..{len(table) - 1}")
        below = table[int(section)]
    else:
        below = table.setdefault(section, {})
    if isinstance(below, str):
        below = {"name": below}
        table[int(section) if isinstance(table, list) else section] = below
    if not isinstance(below, dict | list):
        raise UserError(f"{said}: {section} is not a section")
    return below


def toml_value(text: str) -> Any:
    """The text as a TOML value; a bare word is a string, and .5 is a number."""
    try:
        with parsing(f"{text:.60}…"):
            return tomllib.loads(f"value = {text}")["value"]
    except UserError as error:
        if not isinstance(error.__cause__, tomllib.TOMLDecodeError):
            raise
        return float(text) if re.fullmatch(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?", text, re.I) else text
