"""Tables as files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim.core.files import written_whole

Row = Mapping[str, Any]
"""Column → value; None where there is none."""


def write_csv(rows: Sequence[Row], path: Path, columns: Sequence[str] = ()) -> None:
    """Write rows that have the same columns; `columns` are their names if there may be no rows."""
    with written_whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns or rows[0]))
        writer.writeheader()
        writer.writerows(rows)
