"""Tables as files, for people who open them in a spreadsheet.

Files that fedsim reads again (`counts.csv`, `rounds.csv`, `answers.csv`) are written elsewhere, as they are.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim.core.files import written_whole

Row = Mapping[str, Any]
"""Column → value; None where there is none."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_csv(rows: Sequence[Row], path: Path, columns: Sequence[str] = ()) -> None:
    """Write rows that have the same columns; `columns` are their names if there may be no rows."""
    with written_whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns or rows[0]))
        writer.writeheader()
        writer.writerows({name: _harmless(cell) for name, cell in row.items()} for row in rows)


def _harmless(cell: Any) -> Any:
    """A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay numbers."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA_STARTS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
