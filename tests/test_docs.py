"""What the documents show, runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = [
    pytest.param(block, id=f"{file.name}-{number}")
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", file.read_text(encoding="utf-8"), re.S))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code):
    exec(compile(code, "example", "exec"), {})


def test_readme_shows_the_quickstart_as_it_is():
    import tomllib

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = tomllib.loads(re.search(r"```toml\n(.*?)```", readme, re.S)[1])
    shipped = tomllib.loads((ROOT / "scenarios/library/quickstart.toml").read_text(encoding="utf-8"))
    shipped["model"].pop("hidden")
    assert shown == shipped
