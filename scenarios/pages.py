"""The templates, the colours and the embedded pictures that all pages share."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, BACKGROUND, MISSED, INVENTED, UNRECOVERED = "#1f3a5f", "#f4f1ea", "#d1495b", "#edae49", "#b8b8b8"


def render(template: str, **content: Any) -> str:
    """A page from its template; every name that it uses must be given."""
    environment = Environment(
        loader=PackageLoader("scenarios"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
    )
    return environment.get_template(template).render(**content)


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
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
