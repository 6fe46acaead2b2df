"""The files that an audit leaves: the recovery, a table of clients, every figure, and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attacks.disaggregation.recovery import Outcome, Recovery
from fedsim.core.files import filled_whole, leftovers, write_json, write_text
from scenarios.audit.audit import Audit
from scenarios.audit.dossier import filed
from scenarios.audit.page import render_audit
from scenarios.tables import write_csv

CLIENT_COLUMNS = ("client", "outcome", "confidence", "rounds", "update_error", "reason")
_RECOVERY, _CLIENTS, _RESULT, _REPORT = "recovery.npz", "clients.csv", "result.json", "report.html"
"""In the order in which they are written."""


def is_free(folder: Path) -> bool:
    """Whether an audit may write there: the folder is new, empty, or what a killed audit left."""
    if not folder.is_dir():
        return not folder.exists()
    names = {file.name for file in set(folder.iterdir()) - leftovers(folder)}
    return not names or (_RECOVERY in names and names <= {_RECOVERY, _CLIENTS, _RESULT})


def save_audit(audit: Audit, folder: Path) -> None:
    """Write `recovery.npz`, `clients.csv`, `result.json` and `report.html` into a folder that `is_free`.

    All four are there in the end, or none. `recovery.npz` has the clients that the attack separated: there
    may be millions of others, and their rows would be empty. Others with a name are in `clients.csv`.
    """
    separated = audit.recovery.of(audit.recovery.outcome != Outcome.UNRESOLVED)
    rows = client_rows(audit.recovery if audit.named else separated)
    with filled_whole(folder):
        for leftover in leftovers(folder):
            leftover.unlink()
        separated.save(folder / _RECOVERY)
        write_csv(rows, folder / _CLIENTS, CLIENT_COLUMNS)
        write_json(folder / _RESULT, filed(audit).model_dump(mode="json"))
        write_text(folder / _REPORT, render_audit(audit, rows))


def client_rows(recovery: Recovery) -> list[dict[str, Any]]:
    """One row of `CLIENT_COLUMNS` per client, in the order of the recovery."""
    took_part = (recovery.participation == 1).sum(axis=0)
    return [
        {
            "client": str(recovery.clients[k]),
            "outcome": str(recovery.outcome[k]),
            "confidence": f"{recovery.confidence[k]:.4g}",
            "rounds": int(took_part[k]) if recovery.outcome[k] != Outcome.UNRESOLVED else "",
            "update_error": "" if np.isnan(recovery.update_error[k]) else f"{recovery.update_error[k]:.4g}",
            "reason": str(recovery.reason[k]),
        }
        for k in range(len(recovery.clients))
    ]
