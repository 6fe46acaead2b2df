"""Files by name: the library of scenarios and evaluations, and which kind of file a file is."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from fedsim.core.errors import UserError
from fedsim.core.files import reading

LIBRARY = Path(__file__).parents[1] / "library"

Kind = Literal["scenario", "evaluation", "sweep"]
_COMMANDS: Mapping[Kind, str] = {"scenario": "run", "evaluation": "evaluate", "sweep": "sweep"}


def kind_of(content: Mapping[str, Any]) -> Kind:
    """What a file is, by its keys."""
    if "vary" in content:
        return "sweep"
    return "evaluation" if "base" in content or "seeds" in content else "scenario"


def check_kind(file: Path | str, content: Mapping[str, Any], wanted: Kind) -> None:
    """A `UserError` that names the right command if a file is of another kind."""
    found = kind_of(content)
    if found != wanted:
        raise UserError(
            f"{file}: is no file for `fedsim {_COMMANDS[wanted]}`; `fedsim {_COMMANDS[found]} {file}` runs it"
        )


def found_in_library(name: str, wanted: Kind) -> Path:
    """The file at that path, or the library's file of that name and kind."""
    if Path(name).exists():
        return Path(name)
    every = {path.stem: path for path in sorted(LIBRARY.glob("*.toml"))}
    if name in every:
        check_kind(name, read_toml(every[name]), wanted)
        return every[name]
    fitting = [stem for stem, path in every.items() if kind_of(read_toml(path)) == wanted]
    similar = difflib.get_close_matches(name, fitting, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise UserError(f"{name}: no such file, and no such {wanted} in the library ({', '.join(fitting)}){hint}")


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file, without further checks."""
    with reading(file, "a TOML file"):
        return tomllib.loads(file.read_text(encoding="utf-8"))
