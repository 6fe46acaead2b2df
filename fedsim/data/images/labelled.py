"""Labelled images as a data set."""

from __future__ import annotations

from fedsim.data.dataset import Dataset, Examples
from fedsim.tasks.images import ImageClassification


def labelled_images(class_names: tuple[str, ...], train: Examples, test: Examples) -> Dataset:
    """Images (n, height, width, 3) uint8 with labels (n,) as a data set; a `ValueError` about others."""
    return Dataset(ImageClassification(class_names, train.inputs.shape[1:]), train, test)
