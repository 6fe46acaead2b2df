"""The server of the page: on this machine only, read-only, and nothing but the pages of one folder."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from scenarios.charts import Spec
from scenarios.compare.page import learning_curves
from scenarios.pages import render
from scenarios.view.catalogue import PAGES, Entry, entries

HOST = "127.0.0.1"
_MOST_CURVES = 16
"""Runs in the chart; more lines could not be told apart."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def application(root: Path) -> Starlette:
    """The app for one folder. Every route answers GET only."""
    root = root.resolve()

    def index(request: Request) -> Response:
        found = entries(root)
        page = render("view.html.j2", folder=str(root), entries=found, curves=_curves(found))
        return HTMLResponse(page, headers=_HEADERS)

    def live(request: Request) -> Response:
        """The rows and the chart as they are now; the page asks for them every two seconds."""
        found = entries(root)
        rows = render("view_rows.html.j2", entries=found)
        return JSONResponse({"rows": str(rows), "curves": _curves(found)}, headers=_HEADERS)

    def page(request: Request) -> Response:
        """A page of an entry. Any other file is hidden: a run holds secrets, such as the truth."""
        file = (root / request.path_params["path"]).resolve()
        if file.name not in PAGES or not file.is_relative_to(root) or not file.is_file():
            return PlainTextResponse("there is no such page\n", status_code=404, headers=_HEADERS)
        return FileResponse(file, media_type="text/html", headers=_HEADERS)

    return Starlette(
        routes=[Route("/", index), Route("/live", live), Route("/pages/{path:path}", page)],
        # A page of another site that resolves its own name to this machine gets no answer.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
    )


def _curves(found: list[Entry]) -> Spec | None:
    """The learning curves of the runs that have the first run's metric."""
    learned = [entry for entry in found if len(entry.history) > 1]
    if not learned:
        return None
    metric = learned[0].metric
    shown = [entry for entry in learned if entry.metric == metric][:_MOST_CURVES]
    return learning_curves({entry.path: entry.history for entry in shown}, metric)
