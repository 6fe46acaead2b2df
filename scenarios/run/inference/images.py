"""The judge of gradient inversion: how near guessed images are to the client's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from attacks.inference.attack import Kind
from scenarios.run.inference.contact_sheet import save_contact_sheet
from scenarios.run.inference.findings import COHORT, Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import Judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scenarios.run.world import World

Pixels = NDArray[np.float32]
"""(n, height, width, 3) in [0, 1]."""

PERFECT_DB = 100.0
"""The PSNR reported for a flawless image: it is infinite, which JSON cannot hold."""

Pairs = Mapping[str, list[tuple[Pixels, Pixels]]]
"""Column → for every row the matched guesses and the true images, in the order of the images."""


def match(guesses: Pixels, images: Pixels) -> Pixels:
    """For every image the guess assigned to it, by the assignment with the highest total PSNR.

    If there are fewer guesses than images, the images that are left get a grey guess.
    """
    missing = max(0, len(images) - len(guesses))
    grey = np.full((missing, *images.shape[1:]), 0.5, dtype=np.float32)
    candidates = np.concatenate((guesses, grey))
    flat, target = (array.reshape(len(array), -1).astype(np.float64) for array in (candidates, images))
    squares = (flat**2).sum(axis=1)[:, None] + (target**2).sum(axis=1) - 2 * flat @ target.T
    rows, columns = linear_sum_assignment(np.log(np.maximum(squares, 1e-12)))
    return candidates[rows[np.argsort(columns)]]


def psnr_db(guesses: Pixels, images: Pixels) -> NDArray[np.float64]:
    """(n,) peak signal-to-noise ratio of each guess, at most `PERFECT_DB`."""
    import torch

    ratio = _torchmetrics().peak_signal_noise_ratio(
        torch.from_numpy(guesses), torch.from_numpy(images), data_range=1.0, reduction="none", dim=(1, 2, 3)
    )
    return np.asarray(np.minimum(ratio.double().numpy(), PERFECT_DB))


def ssim(guesses: Pixels, images: Pixels) -> NDArray[np.float64]:
    """(n,) structural similarity of each guess: 1 for the image itself."""
    import torch

    planes = (torch.from_numpy(np.ascontiguousarray(a.transpose(0, 3, 1, 2))) for a in (guesses, images))
    similarity = _torchmetrics().structural_similarity_index_measure(
        *planes, data_range=1.0, reduction="none"
    )
    return np.asarray(similarity.double().numpy()).reshape(-1)


def _torchmetrics() -> Any:
    # torchmetrics imports torchvision, which needs help beside a CPU build of torch.
    from fedsim.core.torchvision_compat import declare_missing_operators

    declare_missing_operators()
    import torchmetrics.functional.image

    return torchmetrics.functional.image


class InversionJudge(Judge):
    """PSNR and SSIM against the client's own images, after the best assignment of guesses to images.

    Guesses from a sum are compared with the images of the one attacked client, too. A sum hides the owners
    of its images, so the best assignment is generous to the attack.
    """

    kind: ClassVar[Kind] = "inversion"

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

    def draw(self, findings: Findings) -> Figure:
        """A gallery of the best guesses: the true image on top, below it the guess of each column."""
        from matplotlib.figure import Figure

        pairs = _pairs(findings)
        rows = [column for column in _GALLERY if column in pairs]
        rows += [column for column in pairs if column.startswith(COHORT)]
        tiles = _tiles(findings, pairs)
        blocks = -(-len(tiles) // _ACROSS)
        down = len(rows) + 1
        height, width, _ = findings.guesses["oracle"].shape[2:]
        # One canvas: matplotlib takes seconds to lay out a hundred axes.
        step_y, step_x = round(1.22 * height), round(1.08 * width)
        canvas = np.ones((down * blocks * step_y, _ACROSS * step_x, 3), dtype=np.float32)
        figure = Figure(figsize=(11, 11 * canvas.shape[0] / canvas.shape[1]))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for number, tile in enumerate(tiles):
            block, across = divmod(number, _ACROSS)
            for row, (caption, picture) in enumerate(_column_of_pictures(tile, findings, pairs, rows)):
                y, x = (block * down + row) * step_y + (step_y - height), across * step_x
                canvas[y : y + height, x : x + width] = picture
                axes.text(x + width / 2, y - 1, caption, fontsize=7, ha="center", va="bottom")
        axes.imshow(canvas, interpolation="nearest", aspect="auto")
        return figure

    def save_preview(self, preview: NDArray[np.float32], file: Path) -> None:
        """The images so far, as one PNG."""
        save_contact_sheet(preview, file)


_GALLERY = ("oracle", "disaggregated", "aggregate")
_ACROSS, _TILES = 8, 16


def _tiles(findings: Findings, pairs: Pairs) -> list[tuple[int, int]]:
    """(client, image) to show: the first clients' images that the oracle's guesses match best."""
    tiles = []
    for client, (guesses, images) in enumerate(pairs["oracle"]):
        best = np.argsort(-psnr_db(guesses, images), kind="stable")[:_ACROSS]
        tiles += [(client, int(image)) for image in best]
    return tiles[:_TILES]


def _column_of_pictures(
    tile: tuple[int, int], findings: Findings, pairs: Pairs, rows: list[str]
) -> Iterator[tuple[str, Pixels]]:
    """Caption and picture, from top to bottom; white where a client has no recovered update."""
    client, image = tile
    truth = pairs["oracle"][client][1][image]
    yield f"truth, client {findings.clients[client]}", truth
    for column in rows:
        (place,) = np.nonzero(findings.about(column) == client)
        if len(place):
            guess = pairs[column][place[0]][0][image]
            name = column.replace(COHORT, "sum of ")
            yield f"{name} {psnr_db(guess[None], truth[None])[0]:.1f} dB", guess
        else:
            yield f"{column}: not recovered", np.ones_like(truth)


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
