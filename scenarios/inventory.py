"""The choices that scenarios have, and the packages that are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from analytics.questions import Collection
from analytics.release import Release
from attacks.disaggregation.solvers import Solver
from attacks.inference import Inference
from fedsim.core.settings import Settings, members
from fedsim.data import DataSource, Partition
from fedsim.defences import AnyDefence
from fedsim.models import Model
from fedsim.server.strategies import AnyStrategy
from fedsim.trusted.schedule import Participation
from fedsim.trusted.summation import Aggregation
from scenarios.run.scenario import LIBRARY, load_scenario, read_toml


def inventory() -> dict[str, dict[str, str]]:
    """Kind → name → one line about it."""
    library = sorted(LIBRARY.glob("*.toml"))
    evaluations = {path: content["title"] for path in library if "seeds" in (content := read_toml(path))}
    return {
        "data sets": _members(DataSource),
        "partitions": _members(Partition),
        "models": _members(Model),
        "aggregations": _members(Aggregation),
        "participation": _members(Participation),
        "server strategies": _members(AnyStrategy),
        "defences": _members(AnyDefence),
        "collection of counts": _members(Collection),
        "release of counts": _members(Release),
        "solvers": _members(Solver),
        "inference attacks": _members(Inference),
        "packages": {
            name: _installed(name) for name in ("flwr", "torch", "torchvision", "scipy", "opendp", "gurobipy")
        },
        "scenarios": {path.stem: load_scenario(path).title for path in library if path not in evaluations},
        "evaluations": {path.stem: title for path, title in evaluations.items()},
    }


def _members(union: Any) -> dict[str, str]:
    """The members of a union of named settings, with the first line of each docstring."""
    return {name: about(member) for name, member in members(union).items()}


def about(member: type[Settings]) -> str:
    """The first line of a settings class's docstring."""
    return (member.__doc__ or "").strip().partition("\n")[0]


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return f"not installed: pip install {name}"
