"""A small residual network that normalises within an image, as federated learning needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveInt

from fedsim.core.errors import UserError
from fedsim.core.settings import Settings

if TYPE_CHECKING:
    from torch import nn

_GROUPS = 8


class Resnet(Settings):
    """A small ResNet with GroupNorm: three stages of residual blocks.

    With the defaults 78,042 parameters on colour images in ten classes, whatever their size. Group
    normalisation, because batch normalisation keeps statistics beside the parameters, which clients
    would have to share, too.
    """

    name: Literal["resnet"] = "resnet"
    width: Annotated[int, Field(gt=0, multiple_of=_GROUPS)] = 16
    """Channels of the first stage; the second and third have two and four times as many."""
    blocks: PositiveInt = 1
    """Residual blocks per stage."""

    def build(self, image_shape: tuple[int, int, int], classes: int) -> nn.Module:
        """A freshly initialised network that maps (n, *image_shape) to (n, classes) logits."""
        from torch import nn

        channels, height, width = image_shape
        if min(height, width) < 4:
            raise UserError(f"model.name: resnet needs at least 4×4 pixels, these are {height}×{width}")
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
            nn.Linear(inputs, classes),
        )


def _residual(inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """Two normalised 3×3 convolutions, added to a shortcut: itself, or a 1×1 convolution to the new size."""
    from torch import nn

    from fedsim.models.residual import Residual

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
