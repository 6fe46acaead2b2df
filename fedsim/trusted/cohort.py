"""The cohort as the server sees it: one node that sends one reply, the sum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.flower import COHORT_SIZE, WEIGHT, vector_record

_COHORT_NODE = 1


_PATIENCE = 5
"""Times that a strategy may ask for the nodes in one round. One that waits for more asks every second."""


class CohortGrid(Grid):
    """The grid that the server's own strategy gets in a round: one node, which it cannot talk to directly."""

    def __init__(self) -> None:
        self._asked = 0

    def get_node_ids(self) -> Iterable[int]:
        """The node that stands for the cohort; a `UserError` if a strategy keeps waiting for more nodes."""
        self._asked += 1
        if self._asked > _PATIENCE:
            raise UserError(
                "the strategy inside TrustedAggregation waits for more nodes than the one that stands for "
                "the cohort: set its min_train_nodes=1 and min_available_nodes=1"
            )
        return [_COHORT_NODE]

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PermissionError("behind trusted aggregation a strategy cannot reach single clients")

    @property
    def run(self) -> Run:
        """Refused."""
        self._refuse()

    set_run = create_message = push_messages = pull_messages = send_and_receive = _refuse


def cohort_reply(
    instruction: Message, total: NDArray[np.float32], *, weight: float, cohort_size: int
) -> Message:
    """The one reply that the server's own strategy gets: a sum, its weight and its number of updates."""
    metrics = MetricRecord({WEIGHT: weight, COHORT_SIZE: cohort_size})
    return Message(RecordDict({"arrays": vector_record(total), "metrics": metrics}), reply_to=instruction)
