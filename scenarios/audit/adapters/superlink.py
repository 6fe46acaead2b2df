"""The state database of a Flower SuperLink: which nodes answered which messages of a run.

The SuperLink keeps messages until its app has read them, so the database of a running or killed federation
names the nodes of its last rounds; newer versions also keep the metadata of old messages. A reply without an
error is a participation, a reply with an error is none, and a message without a reply says nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import reading
from scenarios.audit.adapters.participations import Participations

_TRAIN = "train"


@dataclass(frozen=True)
class _Message:
    """A request to train, and what became of it: True, False after an error, None without a reply."""

    run: int
    node: int
    created: float
    group: str
    content: bytes | None
    answered: float | None
    took_part: bool | None


def read_superlink(path: Path, run: int | None = None) -> Participations:
    """The participations of a run; without a `run` there must be only one that trained."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    with (
        reading(path, "the state database of a SuperLink"),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database,
    ):
        messages = list(_requests(database))
    runs = sorted({message.run for message in messages})
    if run is None and len(runs) > 1:
        raise UserError(
            f"{path}: several runs have trained: choose one with --run {' or '.join(map(str, runs))}"
        )
    chosen = [message for message in messages if run is None or message.run == run]
    if not chosen:
        whose = f" of run {run}" if run is not None else ""
        raise UserError(
            f"{path}: there are no messages{whose} about training in it: a SuperLink deletes messages once "
            "its app has read them"
        )
    chosen.sort(key=lambda message: message.created)
    known: dict[tuple[int, str], bool] = {}
    for round_, message in zip(_rounds(chosen), chosen, strict=True):
        if message.took_part is not None:
            known[round_, str(message.node)] = message.took_part
    return Participations(path, known)


def _requests(database: sqlite3.Connection) -> Iterator[_Message]:
    """Every request to train in the tables that this version of Flower has."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables & {"message", "message_ins"}:
        raise ValueError("it has no table of messages")
    if {"message_ins", "message_res"} <= tables:
        yield from _read(
            database,
            "SELECT i.run_id, i.dst_node_id, i.created_at, i.group_id, i.content, r.created_at, "
            "r.error IS NULL, i.message_type FROM message_ins i "
            "LEFT JOIN message_res r ON r.reply_to_message_id = i.message_id",
        )
    if "message" in tables:
        yield from _read(
            database,
            "SELECT i.run_id, i.dst_node_id, i.created_at, i.group_id, NULL, r.created_at, "
            "r.message_id IS NOT NULL, i.message_type FROM message i "
            "LEFT JOIN message r ON r.reply_to_message_id = i.message_id WHERE i.reply_to_message_id IS NULL",
        )


def _read(database: sqlite3.Connection, query: str) -> Iterator[_Message]:
    for run, node, created, group, content, answered, fine, kind in database.execute(query):
        if str(kind).partition(".")[0] != _TRAIN:
            continue
        # SQLite has signed integers only.
        yield _Message(
            int(run) % 2**64,
            int(node) % 2**64,
            float(created),
            str(group or ""),
            content,
            None if answered is None else float(answered),
            None if answered is None else bool(fine),
        )


def _rounds(messages: list[_Message]) -> Iterator[int]:
    """The round of each message, from 0: as its group or its content says, else by time.

    By time, a request that follows a reply of the current round begins the next round.
    """
    said = [_said_round(message) for message in messages]
    if all(number is not None for number in said):
        yield from (int(number or 0) for number in said)
        return
    current, replied = 0, float("inf")
    for message in messages:
        if message.created > replied:
            current, replied = current + 1, float("inf")
        if message.answered is not None:
            replied = min(replied, message.answered)
        yield current


def _said_round(message: _Message) -> int | None:
    """Flower counts rounds from 1; strategies name them in the configuration that they send."""
    if message.group.isdecimal() and 0 < int(message.group) < 2**31:
        return int(message.group) - 1
    if not message.content:
        return None
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict

    content = recorddict_from_proto(RecordDict.FromString(message.content))
    numbers = [config.get("server-round") for config in content.config_records.values()]
    found = next((number for number in numbers if isinstance(number, int) and number > 0), None)
    return None if found is None else found - 1
