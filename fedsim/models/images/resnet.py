"""A small residual network with group normalisation: federated learning shares parameters only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from fedsim.models.images.convolutional import Convolutional
from fedsim.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn

_GROUPS = 8


class Resnet(Convolutional):
    """A small ResNet with GroupNorm: three stages of residual blocks.

    With the defaults 78,042 parameters on colour images of any size in ten classes. It uses group
    normalisation, because batch normalisation keeps statistics beside the parameters, which clients would
    have to share, too.
    """

    smallest_side: ClassVar[int] = 4

    name: Literal["resnet"] = "resnet"
    width: Annotated[int, Field(gt=0, multiple_of=_GROUPS)] = 16
    """Channels of the first stage; the second and third have two and four times as many."""
    blocks: PositiveInt = 1
    """Residual blocks per stage."""

    def build(self, task: Task) -> nn.Module:
        """A freshly initialised network from images to logits."""
        from torch import nn

        channels, _, _ = self.image_shape(task)
        stages: list[nn.Module] = []
        inputs = self.width
        for stage in range(3):
            outputs = self.width * 2**stage
            for block in range(self.blocks):
                # Every stage but the first halves the image in its first block.
                stages.append(_residual(inputs, outputs, stride=2 if stage and not block else 1))
                inputs = outputs
        return nn.Sequential(
            nn.Conv2d(channels, self.width, 3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, self.width),
            nn.ReLU(),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(inputs, task.outputs),
        )


def _residual(inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """Two normalised 3×3 convolutions, added to a shortcut: the input, or a 1×1 convolution of it."""
    from torch import nn

    from fedsim.models.images.residual import Residual

    shortcut: nn.Module = nn.Identity()
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.GroupNorm(_GROUPS, outputs)
        )
    body = nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(_GROUPS, outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(_GROUPS, outputs),
    )
    return Residual(body, shortcut)
