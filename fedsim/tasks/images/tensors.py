"""Tensors that are images: how they are recognised, and their task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.tasks.classification import Classification
from fedsim.tasks.images.classification import IMAGE_INPUTS, ImageClassification
from fedsim.tasks.task import Inputs
from fedsim.tasks.tensors.classification import TensorClassification


@dataclass(frozen=True)
class ImageTensorClassification(TensorClassification):
    """Tensors (n, channels, height, width), which networks for images take."""

    title: ClassVar[str] = "classification of images"
    noun: ClassVar[str] = "images"
    inputs: ClassVar[Inputs] = IMAGE_INPUTS


def visual_task(class_names: tuple[str, ...], inputs: NDArray[Any]) -> Classification | None:
    """The task of colour images (n, height, width, 3) uint8, or of (n, channels, height, width).

    None for tensors of other shapes, which are no images.
    """
    if inputs.ndim != 4:
        return None
    is_colour = inputs.dtype == np.uint8 and inputs.shape[-1] == 3
    kind = ImageClassification if is_colour else ImageTensorClassification
    return kind(class_names, inputs.shape[1:])
