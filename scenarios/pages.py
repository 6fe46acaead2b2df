"""The templates and the embedded pictures that all pages share.

A page extends `base.html.j2` and fills its blocks. The macro `chart(spec, about)` of `parts.html.j2` places a
chart (see `scenarios/charts.py`). The library that draws charts is embedded once, in pages that have one.
"""

from __future__ import annotations

import base64
import io
import math
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from scenarios.vega import LOADER, digest, library

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from scenarios.charts import Spec

INK, BACKGROUND, UNRECOVERED = "#1f3a5f", "#f4f1ea", "#b8b8b8"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("scenarios"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["vega"] = library
    environment.globals["loader"] = Markup(LOADER.read_text(encoding="utf-8"))
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    environment.filters["figure"] = figure
    environment.filters["digest"] = lambda script: digest(str(script).encode())
    return environment


def render(template: str, **content: Any) -> Markup:
    """A page, or a part of one, from its template; every name that it uses must be given."""
    return Markup(_environment().get_template(template).render(**content))


def shown(spec: Spec, about: str) -> Markup:
    """A chart for a page; `about` describes it to those who cannot see it."""
    return Markup(_environment().get_template("parts.html.j2").module.chart(spec, about))  # type: ignore[attr-defined]


def figure(value: float | None) -> str:
    """A number in a table; a dash if there is none."""
    if value is None or math.isnan(value):
        return "–"
    return "< 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def embedded(figure: Figure) -> str:
    """A picture as a data URI; the same figure gives the same bytes.

    Dollar signs in the users' names are dollar signs. Only the labels of logarithmic axes are formulas.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for label in axis.get_ticklabels(which="both") if axis.get_scale() == "log" else ():
                label.set_parse_math(True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return _data_uri(buffer.getvalue())


def picture(colours: NDArray[np.uint8]) -> str:
    """Colours (height, width, 3 or 4) as a data URI; the page enlarges each to a square."""
    from PIL.Image import fromarray

    buffer = io.BytesIO()
    fromarray(colours).save(buffer, format="PNG", optimize=True)
    return _data_uri(buffer.getvalue())


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
