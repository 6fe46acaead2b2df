"""A CSV file of participations: `round,client[,took_part]`."""

from __future__ import annotations

import csv
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import reading
from scenarios.audit.adapters.participations import Participations
from scenarios.audit.rounds import COHORT_SIZE_DIGITS

_TOOK_PART = {"1": True, "0": False}


def read_table(path: Path) -> Participations:
    """Every line is a participation, or with `took_part` 0 a round in which the client was absent."""
    known: dict[tuple[int, str], bool] = {}
    with reading(path, "a CSV file of participations"):
        if not path.exists():
            raise UserError(f"{path}: there is no such file")
        with path.open(newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
            reader = csv.DictReader(file)
            columns = set(reader.fieldnames or ())
            if not {"round", "client"} <= columns:
                raise UserError(f"{path}, line 1: expected the header round,client[,took_part]")
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                digits, client = str(row["round"]).strip(), str(row["client"] or "").strip()
                if not digits.isdecimal() or len(digits) > COHORT_SIZE_DIGITS:
                    raise UserError(f"{where}: round is {row['round']!r}, expected a whole number from 0 on")
                if not client:
                    raise UserError(f"{where}: a client without an id")
                said = str(row.get("took_part", "1")).strip()
                if said not in _TOOK_PART:
                    raise UserError(f"{where}: took_part is {said!r}, expected 1 or 0")
                entry = (int(digits), client)
                if entry in known:
                    raise UserError(f"{where}: client {client} is named twice in round {digits}")
                known[entry] = _TOOK_PART[said]
    return Participations(path, known)
