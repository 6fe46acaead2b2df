"""Labelled images in memory, as every data set of the library delivers them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ImageData:
    """Training and test images with their labels.

    Images are (n, height, width, 3) uint8, labels (n,) int64 in `range(len(class_names))`.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
                raise ValueError(
                    f"{part} images: expected (n, height, width, 3) uint8, got {images.shape} {images.dtype}"
                )
            if labels.shape != images.shape[:1]:
                raise ValueError(f"{part} labels: {len(labels)} for {len(images)} images")
            if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.class_names):
                raise ValueError(f"{part} labels: expected 0..{len(self.class_names) - 1}")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width: what a model is built for."""
        height, width, channels = self.train_images.shape[1:]
        return channels, height, width
