"""The example of the documentation runs as it stands."""

from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "disaggregation.md"


def test_the_example_runs():
    example = GUIDE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    exec(compile(example, str(GUIDE), "exec"), {})
