"""Models: one settings class per architecture, each with `build(task)`."""

from typing import Annotated

from pydantic import Field

from fedsim.core.plugins import Extensible
from fedsim.models.architecture import Architecture
from fedsim.models.custom import Custom
from fedsim.models.images.cnn import Cnn
from fedsim.models.images.lenet import Lenet
from fedsim.models.images.resnet import Resnet, Resnet18
from fedsim.models.images.vit import Vit
from fedsim.models.mlp import Mlp
from fedsim.models.text.gru import Gru
from fedsim.models.text.transformer import Transformer

Model = Annotated[
    Lenet | Mlp | Cnn | Resnet | Resnet18 | Vit | Gru | Transformer | Custom,
    Field(discriminator="name"),
    Extensible("models", Architecture),
]

__all__ = [
    "Architecture",
    "Cnn",
    "Custom",
    "Gru",
    "Lenet",
    "Mlp",
    "Model",
    "Resnet",
    "Resnet18",
    "Transformer",
    "Vit",
]
