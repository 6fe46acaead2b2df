"""Models: one settings class per architecture, each with `build(image_shape, classes)`."""

from typing import Annotated

from pydantic import Field

from fedsim.core.settings import BY_NAME
from fedsim.models.cnn import Cnn
from fedsim.models.custom import Custom
from fedsim.models.lenet import Lenet
from fedsim.models.mlp import Mlp
from fedsim.models.resnet import Resnet

Model = Annotated[Lenet | Mlp | Cnn | Resnet | Custom, Field(discriminator="name"), BY_NAME]

__all__ = ["Cnn", "Custom", "Lenet", "Mlp", "Model", "Resnet"]
