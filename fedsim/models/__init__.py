"""Models: one settings class per architecture, each with `build(image_shape, classes)`."""

from typing import Annotated

from pydantic import Field

from fedsim.models.lenet import Lenet
from fedsim.models.mlp import Mlp
from fedsim.settings import BY_NAME

Model = Annotated[Lenet | Mlp, Field(discriminator="name"), BY_NAME]

__all__ = ["Lenet", "Mlp", "Model"]
