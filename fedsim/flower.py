"""Flower's messages and records as this project uses them, and the few uses of Flower's internals."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Flower reports usage over the network unless this is set when Flower is imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.constant import SType
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore.task_identity import TaskIdentity

PARAMETERS = "parameters"
"""The only key of an ArrayRecord here: models and updates travel as one flat vector."""

WEIGHT = "num-examples"
"""Metric with the number of examples behind a reply; Flower's strategies use it as the weight of a mean."""

COHORT_SIZE = "cohort-size"
"""Metric with the number of updates in a summed reply."""

SERVER_NODE_ID = 1
"""Flower's node id of the server."""


def enter_local_task() -> None:
    """Give this process the identity that Flower 1.41 needs before it creates a `Message`.

    Flower's own runtimes set the identity when they start a task. Outside of them it is unset, and creating a
    message raises. One process runs one federation, so constant numbers are enough.
    """
    TaskIdentity.run_id = 1
    TaskIdentity.task_id = 1
    TaskIdentity.node_id = SERVER_NODE_ID
    logging.getLogger("flwr").setLevel(logging.ERROR)


def enter_task() -> None:
    """Let this process create messages, unless one of Flower's runtimes has prepared it already."""
    try:
        _ = TaskIdentity.run_id
    except RuntimeError:
        enter_local_task()


def client_number(context: Context) -> int:
    """The number of the client that runs in this context: its partition of the data."""
    return int(context.node_config["partition-id"])


def cohort_size(reply: Message) -> int:
    """The number of updates in a summed reply."""
    return int(metrics_in(reply.content, "metrics")[COHORT_SIZE])  # type: ignore[arg-type]


def metrics_in(records: RecordDict, key: str) -> MetricRecord:
    """The metrics under a key. Flower's own `metric_records` copies all records to return one."""
    record = records[key]
    assert isinstance(record, MetricRecord)
    return record


def config_in(records: RecordDict, key: str) -> ConfigRecord:
    """The configuration under a key; empty if there is none. Flower's own `config_records` copies all."""
    record = records.get(key, ConfigRecord())
    assert isinstance(record, ConfigRecord)
    return record


def round_number(message: Message) -> int:
    """The round, counted from 1, that a message to a device belongs to."""
    config = message.content["config"]
    assert isinstance(config, ConfigRecord)
    return int(config["server-round"])  # type: ignore[arg-type]


class LazyArray(Array):
    """A Flower array that is serialised only when it leaves the process.

    It keeps the vector itself, so callers must not change the vector any more. In another process it arrives
    as an ordinary `Array`.
    """

    # Flower writes the name of the class before the bytes, and finds the class by that name.
    __qualname__ = "Array"

    def __init__(self, vector: NDArray[Any]) -> None:
        self.dtype, self.shape, self.stype = str(vector.dtype), vector.shape, SType.NUMPY
        self._vector = vector.view()
        self._vector.flags.writeable = False

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes that an ordinary array holds from the beginning."""
        return Array(self._vector).data

    def numpy(self) -> NDArray[Any]:
        """The vector, read-only."""
        return self._vector

    def __reduce__(self) -> tuple[type[Array], tuple[str, tuple[int, ...], str, bytes]]:
        return Array, (self.dtype, self.shape, self.stype, self.data)


class _Sum(LazyArray):
    """An array to which its owner adds vectors in place."""

    __qualname__ = "Array"

    def __init__(self, first: NDArray[np.float32]) -> None:
        self.total = first.copy()
        super().__init__(self.total)


def add_to(records: RecordDict, key: str, vector: NDArray[np.float32]) -> None:
    """Add a vector in place to the sum under a key; start the sum if there is none."""
    if key not in records:
        records[key] = _flat_record(_Sum(vector))
        return
    record = records[key]
    assert isinstance(record, ArrayRecord)
    kept = record[PARAMETERS]
    if not isinstance(kept, _Sum):
        # It was serialised since it was created, for example in a checkpoint.
        kept = record[PARAMETERS] = _Sum(parameters_of(record))
    kept.total += vector


def vector_record(vector: NDArray[np.float32]) -> ArrayRecord:
    """A flat vector as Flower sends it; callers must not change the vector any more."""
    return _flat_record(LazyArray(vector))


def _flat_record(array: Array) -> ArrayRecord:
    record = ArrayRecord()
    record[PARAMETERS] = array
    return record


def record_vector(message: Message) -> NDArray[np.float32]:
    """The flat vector that a message carries under `arrays`, perhaps read-only."""
    return parameters_of(message.content["arrays"])


def parameters_of(record: object) -> NDArray[np.float32]:
    """The flat vector of a record, float32, perhaps read-only."""
    if not isinstance(record, ArrayRecord) or set(record) != {PARAMETERS}:
        raise TypeError(f"expected an ArrayRecord with the single key {PARAMETERS!r}, got {record!r:.80}")
    return np.asarray(record[PARAMETERS].numpy(), dtype=np.float32)


def records_to_bytes(records: RecordDict) -> bytes:
    """Records as Flower writes them to the wire."""
    serialised: bytes = recorddict_to_proto(records).SerializeToString()
    return serialised


def records_from_bytes(serialised: bytes) -> RecordDict:
    """The records that `records_to_bytes` wrote."""
    return recorddict_from_proto(ProtoRecordDict.FromString(serialised))
