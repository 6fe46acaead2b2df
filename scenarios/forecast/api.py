"""Forecasts from Python: `fedsim.forecast`; the command calls the same code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.core.errors import UserError
from fedsim.core.files import write_text, writing
from scenarios.api_results import Findings, html_table
from scenarios.console import progress_bars
from scenarios.forecast.forecast import Forecast, Setting, compared
from scenarios.forecast.forecast import forecast as forecast_setting
from scenarios.forecast.page import draw_on, render_forecast
from scenarios.run.checking import checked
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AS_IT_IS = "as it is"
"""The name of the forecast that others are compared with."""


@dataclass(frozen=True)
class ForecastResult(Findings):
    """A forecast by name: the setting as it is, then its alternatives."""

    forecasts: Mapping[str, Forecast]

    @property
    def sentences(self) -> list[str]:
        """The effect of each alternative, in a sentence."""
        before, *others = self.forecasts.items()
        return [compared(before[1], after, name) for name, after in others]

    def rows(self) -> Sequence[Row]:
        """A row per setting and point of its curve: the fraction of clients exposed after some rounds."""
        return [
            {"setting": name, "rounds": point.rounds, "exposed": point.fraction, "basis": point.basis}
            for name, found in self.forecasts.items()
            for point in found.curve
        ]

    def draw(self, axes: Axes) -> None:
        """Exposed clients over rounds, a curve per setting, with its ceiling."""
        draw_on(axes, self.forecasts)

    def _repr_html_(self) -> str:
        rows = [
            {
                "setting": name,
                "first client": found.first,
                "half": found.half,
                "nearly all": found.nearly_all,
                "half, at best": found.half_at_best,
            }
            for name, found in self.forecasts.items()
        ]
        return html_table(rows, title="Rounds until clients are exposed")


def forecast(
    *,
    clients: int,
    rate: float = 0.1,
    window: int = 10,
    known: float = 1.0,
    counts_noise: float = 0.0,
    noise: float = 0.0,
    dim: int | None = None,
    alternatives: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> ForecastResult:
    """Forecast after how many rounds clients are exposed, as `fedsim forecast` does.

    `alternatives` are changes to compare with, by name, such as `{"rarer counts": {"window": 50}}`. The page
    is written to `out`; without it, nothing is written.
    """
    given = {"clients": clients, "rate": rate, "window": window, "known": known}
    given |= {"counts_noise": counts_noise, "noise": noise} | ({} if dim is None else {"dim": dim})
    settings = {AS_IT_IS: checked(Setting, given, "forecast")}
    for name, change in (alternatives or {}).items():
        settings[name] = checked(Setting, {**given, **change}, f"--alternative {name}")
    page = None if out is None else _page(Path(out))
    with one_thread(), progress_bars(shown=progress) as bar:
        found = {name: forecast_setting(setting, bar(name)) for name, setting in settings.items()}
    if page is not None:
        with writing(page):
            write_text(page, render_forecast(found))
    return ForecastResult(found)


def _page(out: Path) -> Path:
    if out.is_dir():
        raise UserError(f"--out {out}: expected a file, such as forecast.html")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    return out
