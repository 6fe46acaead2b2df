"""Compares a copy of CIFAR-10 with the release."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedsim.data.dataset import Dataset, Examples

BATCH_IMAGES = 10_000
"""Images per batch of the release: five batches of training images and one of test images."""

TRAIN_SHA1 = (
    "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "26e2849e66a845b7f1e4614ae70f4889ae604628",
)
TEST_SHA1 = ("67eb016db431130d61cd03c7ad570b013799c88c",)
"""SHA-1 of the files `data_batch_1.bin` to `data_batch_5.bin`, and of `test_batch.bin`."""


def batch_sha1(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    """SHA-1 of a batch as the release's binary form has it: a label, then red, green and blue, per image."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return hashlib.sha1(
        np.concatenate([labels.astype(np.uint8)[:, None], planes], axis=1).tobytes(), usedforsecurity=False
    ).hexdigest()


def compare_with_release(data: Dataset) -> str:
    """One line about how a copy compares with the release."""
    train, test = len(data.train), len(data.test)
    whole_train, whole_test = BATCH_IMAGES * len(TRAIN_SHA1), BATCH_IMAGES * len(TEST_SHA1)
    if (train, test) != (whole_train, whole_test):
        return f"a part of it: {train} of {whole_train} training and {test} of {whole_test} test images"
    found = _sha1s(data.train) + _sha1s(data.test)
    if found == TRAIN_SHA1 + TEST_SHA1:
        return "identical (SHA-1 of all six batches)"
    return "not identical: other images, or another order"


def _sha1s(part: Examples) -> tuple[str, ...]:
    starts = range(0, len(part), BATCH_IMAGES)
    batches = [slice(start, start + BATCH_IMAGES) for start in starts]
    return tuple(batch_sha1(part.inputs[batch], part.targets[batch]) for batch in batches)
