"""A small vision transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from fedsim.core.errors import UserError
from fedsim.models.encoder import check_heads
from fedsim.models.images.convolutional import Convolutional
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn


class Vit(Convolutional):
    """A small vision transformer: patches, position vectors, encoder layers with LayerNorm, their mean.

    With the defaults 141,898 parameters on 32×32 colour images in ten classes.
    """

    smallest_side: ClassVar[int] = 4

    name: Literal["vit"] = "vit"
    patch: PositiveInt = 4
    """Pixels of a patch's side; image sides are multiples of it."""
    width: PositiveInt = 64
    """Numbers that stand for a patch."""
    layers: PositiveInt = 4
    heads: PositiveInt = 4
    hidden: PositiveInt = 128
    """Neurons in the hidden layer of each encoder layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        check_heads(self.width, self.heads)
        return self

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from images to logits."""
        from fedsim.models.images.transformer import VisionTransformer

        channels, height, width = self.image_shape(task)
        if height % self.patch or width % self.patch:
            raise UserError(
                f"model.patch is {self.patch}: it does not divide images of {height}×{width} pixels"
            )
        return VisionTransformer(
            (channels, height, width),
            task.outputs,
            patch=self.patch,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            hidden=self.hidden,
            dropout=self.dropout,
        )
