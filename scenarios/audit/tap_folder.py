"""The folder that a tap wrote, as an audit reads it; the truth in it is for scoring only."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import read_json, reading
from scenarios.audit.checkpoints import Checkpoints
from scenarios.audit.kinds import Rows
from scenarios.audit.logs import Log
from scenarios.audit.rounds import RoundTable
from scenarios.audit.rows import filled
from scenarios.audit.servers import Server

_TAP_FILE = "tap.json"


@dataclass(frozen=True)
class TapFolder:
    """A recording: what its rows are, and where its files are."""

    path: Path
    rows: str
    weighted: bool

    @classmethod
    def open(cls, path: Path) -> TapFolder:
        """A `UserError` if the folder is not the recording of a tap."""
        if not (path / _TAP_FILE).is_file():
            raise UserError(f"{path}: there is no recording of a tap in it (it has no {_TAP_FILE})")
        content = read_json(path / _TAP_FILE, "the recording of a tap")
        rows = content.get("rows")
        if content.get("format") != 1 or rows not in ("sum", "mean", "model"):
            raise UserError(f"{path / _TAP_FILE}: not the recording of a tap that this version can read")
        return cls(path, str(rows), content.get("weighted_by") is not None)

    def read(self, server: Server | None = None) -> Log:
        """The complete rounds, as sums; if models were recorded, the `server` made them."""
        transcript, counts, sizes = self.path / "transcript", self.counts, self._rounds
        rows: Rows = "weighted-means" if self.weighted else "means"
        if self.rows != "model":
            return Log.read(transcript, counts, rows="sums" if self.rows == "sum" else rows, unfinished=True)
        log = Log.read(transcript, unfinished=True)
        parts = self._servers(log.aggregates)
        models = filled(
            chain.from_iterable(chain([initial], rows) for initial, rows, _ in parts),
            (len(log.aggregates) + len(parts), log.aggregates.shape[1]),
        )
        rounds = np.concatenate([np.arange(first, first + len(rows) + 1) for _, rows, first in parts])
        checkpoints = Checkpoints(models, rounds, None)
        found = Log.of_models(checkpoints, transcript, server, counts, cohort_sizes=sizes, rows=rows)
        return replace(found, layer_shapes=log.layer_shapes)

    def _servers(self, rows: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any], int]]:
        """The initial model, the models and the first round of every server: a killed one begins again."""
        transcript = self.path / "transcript"
        names = [path.name for path in transcript.glob("initial-*.npy")]
        firsts = sorted(int(name[8:-4]) for name in names if name[8:-4].isdecimal())
        # A server that was killed before its first round was over has left its model, and no row.
        firsts = [0, *(first for first in firsts if 0 < first < len(rows))]
        found = []
        for first, stop in zip(firsts, [*firsts[1:], len(rows)], strict=True):
            path = transcript / (f"initial-{first}.npy" if first else "initial.npy")
            with reading(path, "the initial model of a recording"):
                initial = np.load(path, allow_pickle=False)
                if initial.shape != rows.shape[1:] or initial.dtype.kind != "f":
                    raise ValueError(
                        f"shape {initial.shape} of {initial.dtype}, expected floats, as in a row"
                    )
            found.append((initial, rows[first:stop], first))
        return found

    @property
    def _rounds(self) -> Path:
        return self.path / "transcript" / "rounds.csv"

    @property
    def counts(self) -> Path | None:
        """The file of counts, if a window is over."""
        path = self.path / "counts.csv"
        if not path.exists():
            return None
        with reading(path, "a CSV file of counts"), path.open(encoding="utf-8") as file:
            return path if len(list(zip(range(2), file, strict=False))) == 2 else None

    def truth(self) -> dict[str, NDArray[np.uint8]] | None:
        """(rounds,) by client, 1 where it took part; None if the recording keeps no truth.

        Only scoring may call this.
        """
        path = self.path / "truth" / "participation.csv"
        if not path.exists():
            return None
        rounds = len(RoundTable.read(self._rounds).rounds)
        columns: dict[str, NDArray[np.uint8]] = {}
        with reading(path, "the truth of a recording"), path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if int(row["round"]) < rounds:
                    columns.setdefault(row["client"], np.zeros(rounds, np.uint8))[int(row["round"])] = 1
        return columns
