"""What there is to do with the findings of one kind of attack once the truth is on the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scenarios.run.inference.findings import Findings
from scenarios.run.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"aggregate": "#d1495b", "disaggregated": "#1f3a5f", "oracle": "#edae49"}
TITLES = {
    "aggregate": "aggregate: no attack",
    "disaggregated": "disaggregated: this attack",
    "oracle": "oracle: the true update",
}


class Judge(Protocol):
    """Scores one kind of attack, and draws it for the report."""

    def companions(self, world: World, attack: Any) -> NDArray[np.int64]:
        """Who may fill the cohorts for which the attack on a sum is measured."""

    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """What guesses about these clients are to be compared with."""

    def score(self, findings: Findings) -> dict[str, Any]:
        """The figures, each in columns."""

    def draw(self, findings: Findings) -> Figure:
        """A picture of the guesses."""
