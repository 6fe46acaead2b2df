"""What the documents say is true: examples run, paths exist, versions and linters agree."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "attacks").rglob("README.md")),
]
EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
]
FOLDERS = "fedsim|analytics|attacks|scenarios|tests|docs|benchmarks|locks|examples"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w/?")
PROGRAM = re.compile(r"python -m (benchmarks\.\w+)")
MODULE_FILE = re.compile(r"`(\w+\.py)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code):
    exec(compile(code, "example", "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page):
    """A path starts at the root of the repository; a link, or a lone module, at the page's own folder."""
    text = page.read_text(encoding="utf-8")
    # `--out docs/blind-frontier` names a .csv and an .svg.
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists() and not any_suffix(path)]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [name for name in MODULE_FILE.findall(text) if not (page.parent / name).exists()]
    missing += [
        name for name in PROGRAM.findall(text) if not (ROOT / f"{name.replace('.', '/')}.py").exists()
    ]
    assert not missing


def any_suffix(path):
    return any((ROOT / path).parent.glob(f"{Path(path).name}.*"))


def test_the_quickstart_is_shown_as_it_is():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    (shown,) = (
        tomllib.loads(block)
        for block in re.findall(r"```toml\n(.*?)```", text, re.S)
        if block.startswith('title = "Quickstart"')
    )
    shipped = tomllib.loads((ROOT / "scenarios/library/quickstart.toml").read_text(encoding="utf-8"))
    shipped["model"].pop("hidden")
    assert shown == shipped


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+) — (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert citation["version"] == version
    assert newest.groups() == (version, str(citation["date-released"]))


def test_hooks_before_a_commit_are_the_linters_of_make_lint():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    entries = [hook["entry"] for hook in hooks[0]["hooks"]]
    assert entries == [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
