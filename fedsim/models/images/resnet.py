"""Residual networks: a small one, and ResNet-18 as it is used on small images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from fedsim.models.images.convolutional import Convolutional
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn

_GROUPS = 8

Width = Annotated[int, Field(gt=0, multiple_of=_GROUPS)]


class Resnet(Convolutional):
    """A small ResNet: three stages of residual blocks, with GroupNorm, LayerNorm or BatchNorm.

    With the defaults 78,042 parameters on colour images of any size in ten classes. `statistics` are those of
    batch normalisation: `shared` ones are part of an update, `local` ones stay on the devices, with `fedbn`
    together with scale and shift, and `frozen` ones never change (`fedsim.models.normalisation`).
    """

    smallest_side: ClassVar[int] = 4
    stages: ClassVar[int] = 3
    channels_last: ClassVar[bool] = True

    name: Literal["resnet"] = "resnet"
    width: Width = 16
    """Channels of the first stage; every further stage has twice as many."""
    blocks: PositiveInt = 1
    """Residual blocks per stage."""
    norm: Literal["group", "layer", "batch"] = "group"
    statistics: Literal["shared", "local", "fedbn", "frozen"] = "shared"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the last layer's inputs that a step leaves out."""

    @model_validator(mode="after")
    def _statistics_are_kept(self) -> Self:
        if self.norm != "batch" and self.statistics != "shared":
            raise PydanticCustomError("statistics", 'statistics are those of norm = "batch"')
        return self

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from images to logits."""
        from torch import nn

        channels, _, _ = self.image_shape(task)
        stages: list[nn.Module] = []
        inputs = self.width
        for stage in range(self.stages):
            outputs = self.width * 2**stage
            for block in range(self.blocks):
                # Every stage but the first halves the image in its first block.
                stages.append(self._residual(inputs, outputs, stride=2 if stage and not block else 1))
                inputs = outputs
        return nn.Sequential(
            nn.Conv2d(channels, self.width, 3, padding=1, bias=False),
            self._normalisation(self.width),
            nn.ReLU(),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            *([nn.Dropout(self.dropout)] if self.dropout else []),
            nn.Linear(inputs, task.outputs),
        )

    def _normalisation(self, channels: int) -> nn.Module:
        from fedsim.models.normalisation import normalisation

        return normalisation(self.norm, self.statistics, channels)

    def _residual(self, inputs: int, outputs: int, *, stride: int) -> nn.Module:
        """Two normalised 3×3 convolutions, added to a shortcut: the input, or a 1×1 convolution of it."""
        from torch import nn

        from fedsim.models.images.residual import Residual

        shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), self._normalisation(outputs)
            )
        body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            self._normalisation(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            self._normalisation(outputs),
        )
        return Residual(body, shortcut)


class Resnet18(Resnet):
    """ResNet-18 for small images: a 3×3 convolution in front, no pooling; 11 million parameters."""

    stages: ClassVar[int] = 4

    name: Literal["resnet18"] = "resnet18"  # type: ignore[assignment]
    width: Width = 64
    blocks: PositiveInt = 2
