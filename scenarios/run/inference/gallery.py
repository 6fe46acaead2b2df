"""Guessed images beside the true ones, as the report shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.pages import picture
from scenarios.run.inference.findings import COHORT, Findings
from scenarios.run.inference.similarity import Pixels, psnr_db

Pairs = Mapping[str, list[tuple[Pixels, Pixels]]]
"""Column → for every row the matched guesses and the true images, in the order of the images."""

_CLIENTS, _ACROSS = 2, 8
"""Clients in the gallery, and images of each."""
_NAMES = {
    "aggregate": ("What the server sees", "the sum of a round, turned into images"),
    "disaggregated": ("What it recovered", "from the client's separated update"),
    "oracle": ("At best", "from the client's true update"),
}


def gallery(findings: Findings, pairs: Pairs) -> list[dict[str, Any]]:
    """The first clients, each with rows of pictures; the truth is the last row.

    The images of a client are those at evenly spaced ranks, from the best recovered to the worst one: neither
    the best ones alone, nor a sample that changes from run to run.
    """
    return [_client(place, findings, pairs) for place in range(min(_CLIENTS, len(findings.clients)))]


def _client(client: int, findings: Findings, pairs: Pairs) -> dict[str, Any]:
    truth = pairs["oracle"][client][1]
    guesses = {column: _guesses(column, client, findings, pairs) for column in _columns(findings, pairs)}
    recovered = guesses["disaggregated"]
    judged = "oracle" if recovered is None else "disaggregated"
    scores = psnr_db(pairs["oracle"][client][0] if recovered is None else recovered, truth)
    order = np.argsort(-scores, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, _ACROSS).round().astype(int))]
    rows = [_row(column, guess, truth, shown) for column, guess in guesses.items()]
    rows.append({"name": "The truth", "note": "the client's own images", "tiles": _tiles(truth, shown, None)})
    how = "recovered" if judged == "disaggregated" else "that its true update would give"
    said = (
        f"{len(shown)} of its {len(truth)} images, from the best {how} to the worst one, at equal steps; "
        f"below each its PSNR. Mean over all {len(truth)}: {scores.mean():.1f} dB."
    )
    return {"id": int(findings.clients[client]), "rows": rows, "said": said}


def _columns(findings: Findings, pairs: Pairs) -> Iterator[str]:
    yield "aggregate"
    yield from (column for column in pairs if column.startswith(COHORT))
    yield "disaggregated"
    # The true updates give other images only where the recovery has errors, or fails.
    about, oracle = findings.about("disaggregated"), findings.guesses["oracle"]
    recovered = findings.guesses["disaggregated"]
    if len(about) < len(findings.clients) or not np.allclose(recovered, oracle[about], atol=0.02):
        yield "oracle"


def _guesses(column: str, client: int, findings: Findings, pairs: Pairs) -> Pixels | None:
    """The guesses in the order of the client's images; None where it has no recovered update."""
    (place,) = np.nonzero(findings.about(column) == client)
    return pairs[column][place[0]][0] if len(place) else None


def _row(column: str, guesses: Pixels | None, truth: Pixels, shown: NDArray[np.int64]) -> dict[str, Any]:
    name, note = _NAMES.get(column, (f"A sum of {column.removeprefix(COHORT)}", "turned into images"))
    if guesses is None:
        return {"name": name, "note": note, "tiles": [{"picture": "", "caption": ""} for _ in shown]}
    return {"name": name, "note": note, "tiles": _tiles(guesses, shown, psnr_db(guesses, truth))}


def _tiles(images: Pixels, shown: NDArray[np.int64], scores: NDArray[Any] | None) -> list[dict[str, str]]:
    pixels = (np.clip(images[shown], 0, 1) * 255).round().astype(np.uint8)
    captions = [""] * len(shown) if scores is None else [f"{scores[image]:.1f} dB" for image in shown]
    return [{"picture": picture(p), "caption": c} for p, c in zip(pixels, captions, strict=True)]
