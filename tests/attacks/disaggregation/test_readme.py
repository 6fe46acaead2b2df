"""The map in the folder's README is true: its modules exist, and its table of solvers is the declared one."""

import re
from pathlib import Path

import attacks.disaggregation
from attacks.disaggregation.solvers import Solver
from fedsim.core.settings import members

FOLDER = Path(attacks.disaggregation.__file__).parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def modules(text):
    """`space/{gram,affine}` stands for two modules."""
    for name in re.findall(r"`([a-z_]+/(?:[a-z_]+|\{[a-z_,]+\}))`", text):
        folder, rest = name.split("/", 1)
        yield from (f"{folder}/{part}" for part in rest.strip("{}").split(","))


def test_every_module_that_is_named_exists():
    named = set(modules(TEXT))
    assert len(named) > 25
    root = FOLDER.parents[1]
    for name in named:
        assert any((base / f"{name}.py").is_file() for base in (FOLDER, root)), name


def test_every_module_is_named():
    inside = {f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.py") if path.stem != "__init__"}
    solvers = {f"solvers/{name}" for name in members(Solver)}
    assert inside - set(modules(TEXT)) - solvers == set()


def test_the_table_of_solvers_is_what_they_declare():
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \| (yes|no) \| (yes|no) \| (yes|no) \|$", TEXT, re.MULTILINE)
    flags = ("needs_counts", "needs_zero_rows", "models_noise", "can_prove")
    declared = [
        (name, *("yes" if getattr(solver, flag) else "no" for flag in flags))
        for name, solver in members(Solver).items()
    ]
    assert rows == declared
