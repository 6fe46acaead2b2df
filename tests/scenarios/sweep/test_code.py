"""The digest of the code that made a point: it changes with every module that may decide a figure."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.core.users_code import OUR_PACKAGES
from scenarios.sweep.code import sources_digest
from scenarios.sweep.imports import Source, import_closure

ROOT = Path(__file__).parents[3]
DECISIVE = tuple(import_closure(["scenarios.sweep.work"], ROOT))
ALL = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in OUR_PACKAGES
    for path in (ROOT / package).rglob("*.py")
)
EDIT = "\nEDITED = 1\n"
MAKE_POINTS = """
import sys
from pathlib import Path
from scenarios.planted import Planted
from scenarios.run.scenario import load_scenario
from scenarios.sweep.work import run_point, train_shared

scenario, folder = load_scenario(Path(sys.argv[1])), Path(sys.argv[2])
run_point(Planted(clients=4, rounds=12, rate=0.3), folder / "points/planted", None, "code")
train_shared([(scenario, folder / "trainings/small")], "code", False)
run_point(scenario, folder / "points/small", "small", "code")
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of our packages, to be edited and put back."""
    root = tmp_path_factory.mktemp("sources")
    for package in OUR_PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def file_of(module, root):
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def edited(root, text, *files):
    """The digest with some text at the end of every one of the files."""
    before = {file: file.read_text() for file in files}
    try:
        for file, content in before.items():
            file.write_text(content + text)
        return sources_digest(root)
    finally:
        for file, content in before.items():
            file.write_text(content)


def test_editing_any_module_that_makes_points_changes_the_digest(sources):
    """Each module's own digest, and that of all for one module in ten: finding all modules takes a while."""
    texts = {module: file_of(module, sources).read_bytes() for module in DECISIVE}
    assert not [
        m for m, t in texts.items() if Source.parse(t).digest == Source.parse(t + EDIT.encode()).digest
    ]
    before = sources_digest(sources)
    assert not [m for m in DECISIVE[::10] if edited(sources, EDIT, file_of(m, sources)) == before]


def test_editing_comments_docstrings_or_layout_does_not(sources):
    files = [file_of(module, sources) for module in DECISIVE]
    assert edited(sources, '\n# A comment.\n\n\n"""A text."""\n', *files) == sources_digest(sources)


def test_editing_any_other_module_does_not(sources):
    others = set(ALL) - set(DECISIVE)
    assert "scenarios.cli" in others
    files = [file_of(module, sources) for module in others]
    assert edited(sources, EDIT, *files) == sources_digest(sources)


@pytest.mark.parametrize("file", ["scenarios/templates/report.html.j2", "scenarios/library/quickstart.toml"])
def test_editing_a_template_or_a_scenario_does_not(file, sources):
    assert edited(sources, "# more", sources / file) == sources_digest(sources)


def test_the_modules_that_are_known_to_decide_figures_are_covered():
    decisive = {
        f"scenarios.run.{name}" for name in ("runner", "server", "apps", "simulate", "scoring", "world")
    }
    decisive |= {"scenarios.planted", "scenarios.sweep.shared_epochs", "fedsim", "attacks.disaggregation"}
    assert decisive <= set(DECISIVE)
    assert not {name for name in DECISIVE if name.endswith("cli") or ".evaluate" in name or ".audit" in name}


def test_whatever_is_loaded_to_make_points_is_covered(scenario_file, tmp_path):
    """The sources are read without being run. This is what really runs."""
    text = scenario_file.read_text() + '\n[attack]\ninference = [{ name = "label_inference" }]\n'
    text = text.replace("[federation]", '[federation]\naggregation = { name = "masked" }')
    scenario_file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", MAKE_POINTS, str(scenario_file), str(tmp_path / "sweep")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] in OUR_PACKAGES}
    assert "scenarios.run.inference.labels" in loaded
    assert loaded <= set(DECISIVE)


def test_imports_are_found_wherever_they_stand():
    source = Source.parse(
        b"""
from __future__ import annotations
import a.b as c
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from types_only import nothing
else:
    from otherwise import something
class K:
    from inside import klass
    def f(self, x):
        match x:
            case 1:
                try:
                    from matched import branch
                except ImportError:
                    from . import beside
            case _:
                from ..above.module import *
"""
    )
    assert set(source.imports) == {
        (0, "__future__.annotations"),
        (0, "a.b"),
        (0, "typing.TYPE_CHECKING"),
        (0, "otherwise.something"),
        (0, "inside.klass"),
        (0, "matched.branch"),
        (1, "beside"),
        (2, "above.module.*"),
    }


def test_the_closure_follows_packages_submodules_and_relative_imports(tmp_path):
    for name, text in {
        "fedsim/__init__.py": "import numpy\nimport not_ours",
        "fedsim/a/__init__.py": "from .union import Union",
        "fedsim/a/union.py": "from fedsim.a import member as m",
        "fedsim/a/member.py": "from ..b import used",
        "fedsim/b/used.py": "X = 1",
        "fedsim/b/unused.py": "X = 1",
        "attacks/__init__.py": "",
        "start.py": "",
        "scenarios/start.py": "def f():\n    from fedsim.a import Union",
        "not_ours.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = import_closure(["scenarios.start"], tmp_path)
    assert list(found) == [
        "fedsim",
        "fedsim.a",
        "fedsim.a.member",
        "fedsim.a.union",
        "fedsim.b.used",
        "scenarios.start",
    ]
