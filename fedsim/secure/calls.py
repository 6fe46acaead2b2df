"""The call for training as both sides see it: which model it carries, and a digest of all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedsim.tap.layout import Arrays, Layout, arrays_in
from fedsim.trusted.masking.device_side import MASKING

SECURE_SUM = "secure-sum"
"""Name of the record with the terms of a secure sum, in a call and at enrolment."""

TERMS = "terms"


class UnsendableError(ValueError):
    """A reply lacks something that the sum needs."""


def plain(content: RecordDict) -> RecordDict:
    """The call as the app's strategy made it, without the records of the protocol."""
    return RecordDict({key: record for key, record in content.items() if key not in (MASKING, SECURE_SUM)})


def layout_of(arrays: Arrays) -> Layout:
    """All float arrays of a model, by name: the same order on both sides, whatever that of a message."""
    return Layout.of(dict(sorted(arrays.items())), None, skip=())


def sent_model(content: RecordDict) -> Arrays:
    """Copies of all arrays that a call carries."""
    return arrays_in(content)


def agreed_terms(message_type: str, content: RecordDict, terms: str) -> bytes:
    """(32 bytes) a digest of the plain content of a call and of the terms of the sum.

    Masks are derived from it. A server that sends one client another model, learning rate or weight than the
    rest, to single that client out, gets a sum whose masks do not cancel.
    """
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    add(message_type.encode())
    add(terms.encode())
    for key, record in sorted(content.items()):
        add(json.dumps([type(record).__name__, key]).encode())
        for part in _parts(record):
            add(part)
    return digest.digest()


def _parts(record: ArrayRecord | ConfigRecord | MetricRecord) -> Iterable[bytes]:
    for name, value in sorted(record.items()):
        if isinstance(record, ArrayRecord):
            array = record[name].numpy()
            yield json.dumps([name, str(array.dtype), array.shape]).encode()
            yield array.tobytes()
        else:
            yield json.dumps([name, value], default=bytes.hex).encode()


def metric_of(reply: Message, name: str) -> float:
    """A metric of a reply; an `UnsendableError` if there is none that is a number."""
    for record in reply.content.values():
        if isinstance(record, MetricRecord) and name in record:
            value = record[name]
            if isinstance(value, list):
                raise UnsendableError(f"its metric {name!r} is a list, expected a number")
            return float(value)
    raise UnsendableError(f"it has no metric {name!r}")
