"""NVIDIA FLARE: the round metrics of a server, and the audit logs of its clients.

`round_metrics.jsonl` has a line per round, which names the sites whose metrics came with an update. A site
that reported no metrics is not named, so absence proves nothing. An `audit.log` has a line per event, with
headers such as `[J:job][A:train#task]`. It tells how many tasks a client has worked on, not in which rounds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import check_regular, reading
from scenarios.audit.adapters.participations import Participations

METRICS, AUDIT_LOG = "round_metrics.jsonl", "audit.log"
_TASK = re.compile(r"\[J:[^\]]*\]\[A:(?P<name>[^#\]]+)#(?P<id>[^\]]+)\]")
_TRAIN = "train"
"""FLARE's own name of the task in which clients train."""


def read_flare(path: Path) -> Participations:
    """The round metrics in a file or below a folder, and the audit logs of clients below that folder.

    The folder that holds a client's audit log, directly or above a job's folder, has the client's name: it is
    the first folder below `path`.
    """
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    if path.is_file():
        return Participations(path, _metrics(path))
    metrics = sorted(path.rglob(METRICS))
    if len(metrics) > 1:
        raise UserError(f"{path}: there are {len(metrics)} files {METRICS} below it: name the one of the job")
    logs = [log for log in sorted(path.rglob(AUDIT_LOG)) if log.parent != path]
    if not metrics and not logs:
        raise UserError(f"{path}: there is neither {METRICS} nor the {AUDIT_LOG} of a client below it")
    tasks: dict[str, set[str]] = {}
    for log in logs:
        tasks.setdefault(log.relative_to(path).parts[0], set()).update(_train_tasks(log))
    totals = {client: len(found) for client, found in tasks.items() if found}
    return Participations(path, _metrics(metrics[0]) if metrics else {}, totals)


def _metrics(path: Path) -> dict[tuple[int, str], bool]:
    known: dict[tuple[int, str], bool] = {}
    check_regular(path)
    with reading(path, "the round metrics of NVIDIA FLARE"), path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            record = json.loads(line)
            round_, sites = record["round"], record["sites"]
            if type(round_) is not int or not 0 <= round_ < 2**31:
                raise ValueError(f"line {number}: round is {round_!r}, expected a whole number from 0 on")
            for site in sites:
                if not isinstance(site["name"], str) or not site["name"].strip():
                    raise ValueError(f"line {number}: a site without a name")
                known[round_, site["name"].strip()] = True
    return known


def _train_tasks(path: Path) -> set[str]:
    """The ids of the training tasks that an audit log names."""
    with reading(path, "an audit log of NVIDIA FLARE"):
        events = _TASK.finditer(path.read_text(encoding="utf-8"))
        return {event["id"] for event in events if event["name"] == _TRAIN}
