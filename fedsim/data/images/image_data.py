"""Labelled images in memory, as every data set of the library delivers them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Attributes = Mapping[str, NDArray[np.bool_]]
"""Attribute → (n,) which of n images have it, such as `Eyeglasses`; empty where nobody said anything."""


@dataclass(frozen=True)
class ImageData:
    """Training and test images with their labels, and what else is known about them.

    Images are (n, height, width, 3) uint8, at least one in each part, labels (n,) int64 in
    `range(len(class_names))`. Both parts have the same attributes. Nothing trains on attributes: they are
    what an attack on the trained model may try to find out.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    train_attributes: Attributes = field(default_factory=dict)
    test_attributes: Attributes = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
                raise ValueError(
                    f"{part} images: expected (n, height, width, 3) uint8, got {images.shape} {images.dtype}"
                )
            if labels.shape != images.shape[:1]:
                raise ValueError(f"{part} labels: {len(labels)} for {len(images)} images")
            if not len(labels):
                raise ValueError(f"{part} images: there are none")
            if not 0 <= labels.min() <= labels.max() < len(self.class_names):
                raise ValueError(f"{part} labels: expected 0..{len(self.class_names) - 1}")
            for name, has in getattr(self, f"{part}_attributes").items():
                if has.shape != labels.shape or has.dtype != np.bool_:
                    raise ValueError(f"{part} attribute {name}: expected one bool for each image")
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise ValueError(
                f"test images: {self.test_images.shape}, training images {self.train_images.shape}"
            )
        if set(self.train_attributes) != set(self.test_attributes):
            raise ValueError("test attributes: not those of the training images")

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen characters that stand for everything here: other pixels, labels or names give others."""
        digest = hashlib.sha256(repr(self.class_names).encode())
        arrays: list[tuple[str, NDArray[Any]]] = [
            ("training images", self.train_images),
            ("training labels", self.train_labels),
            ("test images", self.test_images),
            ("test labels", self.test_labels),
            *sorted(self.train_attributes.items()),
            *sorted(self.test_attributes.items()),
        ]
        for name, array in arrays:
            digest.update(f"{name} {array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width: what a model is built for."""
        height, width, channels = self.train_images.shape[1:]
        return channels, height, width
