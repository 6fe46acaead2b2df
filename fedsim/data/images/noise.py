"""Noise in the form of CIFAR-10, to time training with."""

from __future__ import annotations

import numpy as np

from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.labelled import labelled_images


def cifar_like_noise(count: int, rng: np.random.Generator) -> Dataset:
    """`count` random training images, 32×32 in ten classes; the test part is one of them."""
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    examples = Examples(pixels, rng.integers(0, 10, count))
    return labelled_images(tuple(map(str, range(10))), examples, examples[np.arange(1)])
