"""The contract of a judge: it compares the guesses of one kind of attack with the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from scenarios.charts import INK, MISSED, ORACLE
from scenarios.run.inference.findings import Findings

if TYPE_CHECKING:
    from markupsafe import Markup

    from scenarios.run.world import World

COLOURS = {"aggregate": MISSED, "disaggregated": INK, "oracle": ORACLE}
TITLES = {
    "aggregate": "aggregate: no attack",
    "disaggregated": "disaggregated: this attack",
    "oracle": "oracle: the true update",
}


class Judge(ABC):
    """Scores the attacks of one kind, and shows their guesses in the report.

    A judge sees the truth; an attack never sees a judge. `score` and `show` need the findings alone, so that
    a report can be drawn again from the files of a run.
    """

    kind: ClassVar[Kind]
    """The attacks that it judges."""
    vivid: ClassVar[bool] = False
    """Whether a reader recognises the guesses at a glance, such as pictures: the report begins with them."""
    meaning: ClassVar[str]
    """What the figures mean, in a sentence or two for the report."""

    def cohort_candidates(self, world: World, attack: Any) -> NDArray[np.int64]:
        """The clients that may fill the cohorts on which the attack is measured: everybody by default.

        A `UserError` if the attack cannot be judged on the data of this world.
        """
        return np.arange(len(world.owned))

    @abstractmethod
    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """The arrays that `score` and `show` compare the guesses about these clients with."""

    @abstractmethod
    def score(self, findings: Findings) -> dict[str, Any]:
        """The figures of a result, each in columns (see `in_columns`)."""

    @abstractmethod
    def show(self, findings: Findings) -> Markup:
        """The guesses as a part of the report: a rendered template, or charts (see `scenarios.pages`)."""

    def save_preview(self, preview: NDArray[np.float32], file: Path) -> None:
        """Replace the file by the latest preview of a running attack; its attacks may have none."""
        raise NotImplementedError(f"{self.kind} shows no preview")
