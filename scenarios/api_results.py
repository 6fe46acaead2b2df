"""What the calls of the Python API return: figures that notebooks and pandas can show."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.core.errors import UserError
from scenarios.tables import Row

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Findings(ABC):
    """The outcome of a call: a table, a picture, and what a notebook shows.

    Its files are those that the command of the same name leaves.
    """

    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """The table as plain rows; all have the same columns."""

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas data frame; a `UserError` if pandas is not installed."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UserError(
                "to_pandas: pandas is not installed: pip install 'fedsim-audit[pandas]'"
            ) from error
        return pd.DataFrame([dict(row) for row in self.rows()])

    @abstractmethod
    def draw(self, axes: Axes) -> None:
        """Draw the main picture."""

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the main picture on these matplotlib axes, or on new ones; return the axes."""
        if axes is None:
            from matplotlib import pyplot

            _, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
        self.draw(axes)
        return axes

    @abstractmethod
    def _repr_html_(self) -> str:
        """What a notebook shows."""


def html_table(rows: Sequence[Row], *, title: str, page: Path | None = None, most: int = 40) -> str:
    """A heading, the first rows as a table, and where the page is; everything escaped."""
    head = "".join(f"<th style='text-align:left'>{_cell(name)}</th>" for name in (rows[0] if rows else ()))
    body = "".join(
        f"<tr>{''.join(f'<td style=text-align:left>{_cell(value)}</td>' for value in row.values())}</tr>"
        for row in rows[:most]
    )
    rest = f"<p>… and {len(rows) - most} more rows</p>" if len(rows) > most else ""
    link = f"<p>page: <code>{_cell(page)}</code></p>" if page is not None else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p><b>{_cell(title)}</b></p>{table}{rest}{link}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return html.escape(f"{value:.3f}" if isinstance(value, float) else str(value))
