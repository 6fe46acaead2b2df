"""The page of an experiment, and its table as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedsim.core.files import write_text
from scenarios.pages import embedded, render
from scenarios.reproduction.outcome import Outcome, Tally
from scenarios.reproduction.pictures import draw
from scenarios.tables import write_csv


def write_outcome(outcome: Outcome, folder: Path) -> list[Path]:
    """Write the table and the page of an experiment; return their paths."""
    table, page = (folder / f"{outcome.experiment.name}.{suffix}" for suffix in ("csv", "html"))
    write_csv(outcome.rows(), table)
    write_text(page, render_outcome(outcome))
    return [table, page]


def render_outcome(outcome: Outcome) -> str:
    """One self-contained page."""
    rows = [row for row, cell in zip(outcome.rows(), outcome.cells, strict=True) if cell.seeds]
    return render(
        "reproduction.html.j2",
        title=outcome.experiment.file.title,
        name=outcome.experiment.name,
        notes=outcome.experiment.file.notes,
        tally=str(Tally.of(outcome.cells)),
        others=outcome.others,
        seconds=outcome.cpu_seconds,
        picture=embedded(draw(outcome)),
        header=list(rows[0]) if rows else [],
        rows=[_texts(list(row.values())) for row in rows],
        settings=tomli_w.dumps(outcome.experiment.file.content()),
    )


def _texts(values: Sequence[Any]) -> list[str]:
    return ["" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
