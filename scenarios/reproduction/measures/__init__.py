"""Measures: ways to turn points into cells, one file each."""

from typing import Annotated

from pydantic import Field

from fedsim.core.settings import BY_NAME
from scenarios.reproduction.measures.fewest import Fewest
from scenarios.reproduction.measures.figures import Figures
from scenarios.reproduction.measures.histogram import Histogram
from scenarios.reproduction.measures.mean import Mean

Measure = Annotated[Mean | Fewest | Histogram | Figures, Field(discriminator="name"), BY_NAME]
