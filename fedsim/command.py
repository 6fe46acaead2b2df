"""The entry of the `fedsim` command: makes sure that it runs our own packages, then runs it.

Other projects have packages called `analytics`, `attacks` or `scenarios` too. If one of them comes first on
Python's path, the command would fail in a strange way.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_OURS = ("analytics", "attacks", "scenarios")
_MISTAKE = 2
"""Exit status of a user's mistake."""


def main() -> None:
    """Run the command; one line and status 2 if another package stands in the place of one of ours."""
    home = Path(__file__).resolve().parents[1]
    for name in _OURS:
        found = _folder_of(name)
        if found is None or found.parent != home:
            where = "is missing" if found is None else f"in {found} is not the one of fedsim"
            print(
                f"fedsim: the package {name!r} {where}: run fedsim in another folder, without PYTHONPATH, or "
                "in an environment of its own",
                file=sys.stderr,
            )
            sys.exit(_MISTAKE)
    # By name: the packages above this one are no dependencies of it.
    import_module("scenarios.cli").main()


def _folder_of(package: str) -> Path | None:
    """The folder that Python would import a package from."""
    spec = find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or package).resolve()
