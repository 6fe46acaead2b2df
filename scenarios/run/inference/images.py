"""The judge of gradient inversion: how near guessed images are to the client's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from scenarios.pages import render
from scenarios.run.inference.contact_sheet import save_contact_sheet
from scenarios.run.inference.findings import Findings, each_column, in_columns, mean_of
from scenarios.run.inference.gallery import Pairs, gallery
from scenarios.run.inference.judge import Judge
from scenarios.run.inference.similarity import match, psnr_db, ssim

if TYPE_CHECKING:
    from markupsafe import Markup

    from scenarios.run.world import World


class InversionJudge(Judge):
    """PSNR and SSIM against the client's own images, after the best assignment of guesses to images.

    Guesses from a sum are compared with the images of the one attacked client, too. A sum hides the owners
    of its images, so the best assignment is generous to the attack.
    """

    kind: ClassVar[Kind] = "inversion"
    vivid: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "PSNR (in dB) and SSIM say how near a guessed image is to the true one; higher is nearer. Mean over "
        "a client's images, its best and its worst one, then over clients. Grey: a plain grey image."
    )

    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """Each client's images, in one array per client: clients own different numbers of images."""
        return {f"client_{k}": world.data.train.inputs[world.owned[int(k)]] for k in clients}

    def score(self, findings: Findings) -> dict[str, Any]:
        """PSNR and SSIM: the mean over images, and the best and the worst image, mean over clients.

        `grey` is the score of plain grey images.
        """
        matched = _pairs(findings)
        psnr = {column: [psnr_db(*pair) for pair in pairs] for column, pairs in matched.items()}
        similarity = {column: [ssim(*pair) for pair in pairs] for column, pairs in matched.items()}
        return {
            **_reduced("psnr_db", psnr, np.mean),
            **_reduced("psnr_db_best", psnr, np.max),
            **_reduced("psnr_db_worst", psnr, np.min),
            **_reduced("ssim", similarity, np.mean),
        }

    def show(self, findings: Findings) -> Markup:
        """A gallery of the first clients' images: what the sum gives, what was recovered, and the truth."""
        return render("gallery.html.j2", clients=gallery(findings, _pairs(findings)))

    def save_preview(self, preview: NDArray[np.float32], file: Path) -> None:
        """The images so far, as one PNG."""
        save_contact_sheet(preview, file)


def _pairs(findings: Findings) -> Pairs:
    images = [(findings.truth[f"client_{k}"] / np.float32(255)) for k in findings.clients]
    pairs = {
        column: [(match(row, images[k]), images[k]) for row, k in zip(guess, about, strict=True)]
        for column, guess, about in each_column(findings)
    }
    pairs["grey"] = [(np.full_like(mine, 0.5), mine) for mine in images]
    return pairs


def _reduced(name: str, scores: Mapping[str, list[NDArray[np.float64]]], of_images: Any) -> dict[str, Any]:
    values = {column: mean_of(np.array([of_images(s) for s in rows])) for column, rows in scores.items()}
    return in_columns(name, values)
