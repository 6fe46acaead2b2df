"""How alike images are: PSNR and SSIM, after the best assignment of guesses to images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.float32]
"""(n, height, width, 3) in [0, 1]."""

PERFECT_DB = 100.0
"""The PSNR reported for a flawless image: it is infinite, which JSON cannot hold."""

_WINDOW, _SIGMA = 11, 1.5
"""Width and deviation of the bell that weighs the pixels around each pixel."""
_C1, _C2 = 0.01**2, 0.03**2
"""Keep quotients finite where images are black or flat."""


def match(guesses: Pixels, images: Pixels) -> Pixels:
    """For every image the guess assigned to it, by the assignment with the highest total PSNR.

    If there are fewer guesses than images, the images that are left get a grey guess.
    """
    # Imported here, because it takes half a second that a run needs only after its training.
    from scipy.optimize import linear_sum_assignment

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

    difference = torch.from_numpy(guesses) - torch.from_numpy(images)
    squares = (difference * difference).sum(dim=(1, 2, 3)) / images[0].size
    ratio = -torch.log(squares) * (10 / torch.log(torch.tensor(10.0)))
    return np.asarray(np.minimum(ratio.double().numpy(), PERFECT_DB))


def ssim(guesses: Pixels, images: Pixels) -> NDArray[np.float64]:
    """(n,) structural similarity of each guess (Wang et al. 2004): 1 for the image itself.

    The figures are those of torchmetrics, whose import takes longer than a small run.
    """
    import torch
    from torch.nn import functional

    x, y = (torch.from_numpy(np.ascontiguousarray(a.transpose(0, 3, 1, 2))) for a in (guesses, images))
    reach = _WINDOW // 2
    x, y = (functional.pad(planes, (reach,) * 4, mode="reflect") for planes in (x, y))
    bell = torch.exp(-torch.pow(torch.arange(-reach, reach + 1, dtype=x.dtype) / _SIGMA, 2) / 2)[None]
    bell = bell / bell.sum()
    channels = x.shape[1]
    kernel = torch.matmul(bell.t(), bell).expand(channels, 1, _WINDOW, _WINDOW)
    means = functional.conv2d(torch.cat((x, y, x * x, y * y, x * y)), kernel, groups=channels)
    of_x, of_y, of_xx, of_yy, of_xy = torch.split(means, len(x))
    variance_x = torch.clamp(of_xx - of_x.pow(2), min=0.0)
    variance_y = torch.clamp(of_yy - of_y.pow(2), min=0.0)
    upper = (2 * (of_x * of_y) + _C1) * (2 * (of_xy - of_x * of_y) + _C2)
    lower = (of_x.pow(2) + of_y.pow(2) + _C1) * (variance_x + variance_y + _C2)
    return np.asarray((upper / lower).reshape(len(x), -1).mean(-1).double().numpy())
