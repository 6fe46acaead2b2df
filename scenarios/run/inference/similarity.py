"""How alike images are: PSNR and SSIM, after the best assignment of guesses to images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Pixels = NDArray[np.float32]
"""(n, height, width, 3) in [0, 1]."""

PERFECT_DB = 100.0
"""The PSNR reported for a flawless image: it is infinite, which JSON cannot hold."""


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
    """The image metrics of torchmetrics."""
    # torchmetrics imports torchvision, which needs help beside a CPU build of torch.
    from fedsim.core.torchvision_compat import declare_missing_operators

    declare_missing_operators()
    import torchmetrics.functional.image

    return torchmetrics.functional.image
