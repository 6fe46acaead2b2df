"""The choices that scenarios have, and the packages that are installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, version
from typing import Any

from analytics.questions import Collection
from analytics.release import Release
from attacks.disaggregation.solvers import Solver
from attacks.inference import Inference
from fedsim.core.errors import UserError
from fedsim.core.plugins import Extensible, extension, reference
from fedsim.core.settings import Settings, members
from fedsim.core.users_code import imported
from fedsim.data import DataSource, Partition
from fedsim.defences import AnyDefence
from fedsim.models import Model
from fedsim.server.strategies import AnyStrategy
from fedsim.trusted.schedule import Participation
from fedsim.trusted.summation import Aggregation
from scenarios.run.scenario import LIBRARY, load_scenario, read_toml

CHOICES: dict[str, Any] = {
    "data sets": DataSource,
    "partitions": Partition,
    "models": Model,
    "aggregations": Aggregation,
    "participation": Participation,
    "server strategies": AnyStrategy,
    "defences": AnyDefence,
    "collection of counts": Collection,
    "release of counts": Release,
    "solvers": Solver,
    "inference attacks": Inference,
}
"""What a scenario chooses by name, and the union of each kind."""


def inventory() -> dict[str, dict[str, str]]:
    """Kind → name → one line about it."""
    library = sorted(LIBRARY.glob("*.toml"))
    evaluations = {path: content["title"] for path in library if "seeds" in (content := read_toml(path))}
    return {
        **{title: _choices(union) for title, union in CHOICES.items()},
        "packages": {
            name: _installed(name) for name in ("flwr", "torch", "torchvision", "scipy", "opendp", "gurobipy")
        },
        "scenarios": {path.stem: load_scenario(path).title for path in library if path not in evaluations},
        "evaluations": {path.stem: title for path, title in evaluations.items()},
    }


def _choices(union: Any) -> dict[str, str]:
    """The members of a union, and the plug-ins of installed packages, with a line about each."""
    kind = extension(union)
    offered = (
        {} if kind is None else {name: _offered(kind, entry) for name, entry in kind.entry_points().items()}
    )
    return offered | {name: about(member) for name, member in members(union).items()}


def _offered(kind: Extensible, entry: EntryPoint) -> str:
    """A line about a plug-in of an installed package; one that cannot be used says why."""
    origin = f"from {entry.dist.name}" if entry.dist is not None else f"from {entry.value}"
    try:
        plug_in = kind.find(entry.name)
    except UserError as error:
        return f"cannot be used ({origin}): {error}"
    return origin if plug_in is None else f"{about(plug_in)} ({origin})"


def plug_ins_in(module: str) -> dict[str, dict[str, str]]:
    """Kind → name → one line, for the plug-ins that a module of the user's defines."""
    content = vars(imported(module, said="list"))
    own = [c for c in content.values() if isinstance(c, type) and c.__module__ == module]
    found: dict[str, dict[str, str]] = {}
    for title, union in CHOICES.items():
        kind = extension(union)
        if kind is None:
            continue
        classes = [c for c in own if issubclass(c, kind.base)]
        if classes:
            found[title] = {reference(c): about(c) for c in classes}
    if not found:
        raise UserError(f"list: {module} defines no plug-in: no class there extends one of the base classes")
    return found


def about(member: type[Settings]) -> str:
    """The first line of a settings class's docstring."""
    return (member.__doc__ or "").strip().partition("\n")[0]


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return f"not installed: pip install {name}"
