"""The folder that a tap writes.

```
tap.json            what the rows are, and the layout; written in the first round, never changed
transcript/         aggregates.npy, rounds.csv, layers.json: the same files as in a run
counts.csv          client, start, stop, count: one line per client and window
state.json          private: how many rounds are complete, and the counts of the window that is not over
exposure.jsonl      private: what the monitor found, if there is one
truth/              private: who took part in which round, and clients' mean updates if asked for
```

`state.json` is replaced whole after everything else of a round. A server that was killed continues from it:
the other files are cut back to the sizes that it names.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.core.errors import UserError
from fedsim.core.files import (
    check_writable,
    leftovers,
    npy_header,
    private_folder,
    read_json,
    reading,
    write_json,
    write_npy,
    write_npz,
    written_whole,
)
from fedsim.core.locks import LOCK_FILE, alone_in
from fedsim.tap.counts import Counts
from fedsim.tap.layout import Layout

Rows = Literal["sum", "mean", "model"]
"""What a row is: the sum of the updates, their mean, or the model after the round."""
TruthKept = Literal["none", "participation", "updates"]
"""What is kept as truth; `updates` includes the participation."""

TAP_FILE, COUNTS_FILE, TRANSCRIPT, TRUTH = "tap.json", "counts.csv", "transcript", "truth"
INITIAL_MODEL = "initial.npy"
"""In the transcript if rows are models: the model before the first round. A server that was killed and begins
again after 8 rounds adds `initial-8.npy`."""
FORMAT = 1
"""Version of the folder's format."""
EXPOSURE_FILE = "exposure.jsonl"
"""One line of JSON per finding of the monitor."""
_STATE_FILE = "state.json"
_AGGREGATES = f"{TRANSCRIPT}/aggregates.npy"
_ROUNDS = f"{TRANSCRIPT}/rounds.csv"
_PARTICIPATION = f"{TRUTH}/participation.csv"
UPDATES = f"{TRUTH}/updates"
_HEADERS = {
    _ROUNDS: ("round", "cohort_size", "weight"),
    COUNTS_FILE: ("client", "start", "stop", "count"),
    _PARTICIPATION: ("round", "client"),
}
_PRIVATE_MODE, _PUBLIC_MODE = 0o600, 0o666


@dataclass(frozen=True)
class Recording:
    """What a tap records.

    `rows` says what a row is, and `weighted_by` names the metric that updates are multiplied by (None: every
    update counts once). `window` is the number of rounds per count (None: no counts are kept).
    """

    rows: Rows
    weighted_by: str | None
    window: int | None
    truth: TruthKept


@dataclass
class _State:
    """Where the recording stands after a complete round."""

    counts: Counts
    rounds: int = 0
    finished: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of every file that grows."""


class TapLog:
    """Grows the recording round by round. A killed recording is continued; a finished one is refused."""

    def __init__(self, folder: Path, recording: Recording) -> None:
        self.folder, self._recording = folder, recording
        self.layout: Layout | None = None
        """Fixed in the first round."""
        self._state = _State(Counts(length=recording.window or 0))
        self.continued = False
        """Whether a killed server began the recording."""
        try:
            check_writable(folder)
        except OSError as error:
            raise UserError(f"Tap(out={str(folder)!r}): cannot be written to: {error.strerror}") from error
        if (folder / TAP_FILE).exists():
            self._continue()
        elif folder.exists() and {file.name for file in folder.iterdir()} - {LOCK_FILE}:
            self._clear_unbegun()

    @property
    def rounds(self) -> int:
        """Complete rounds."""
        return self._state.rounds

    @property
    def counts(self) -> Counts:
        """The counts of the clients so far."""
        return self._state.counts

    def cohorts(self) -> list[list[int]]:
        """Who took part in every complete round, as the truth has it; empty if it is not kept."""
        if self._recording.truth == "none" or not self.rounds:
            return []
        found: list[list[int]] = [[] for _ in range(self.rounds)]
        path = self.folder / _PARTICIPATION
        with reading(path, "the truth of a recording"), path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found[int(row["round"])].append(int(row["client"]))
        return found

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder during a block."""
        return alone_in(self.folder, create=True)

    def begin(self, layout: Layout, initial_model: NDArray[np.float64] | None) -> None:
        """Fix the layout and write it down."""
        self.layout = layout
        (self.folder / TRANSCRIPT).mkdir(parents=True, exist_ok=True)
        if self._recording.truth != "none":
            private_folder(self.folder / TRUTH)
        write_json(self.folder / TRANSCRIPT / "layers.json", {"shapes": layout.shapes})
        if initial_model is not None:
            self._write_model(INITIAL_MODEL, initial_model)
        self._append(_AGGREGATES, npy_header(np.dtype(np.float32), (0, layout.dim)))
        for name, header in _HEADERS.items():
            if self._keeps(name):
                self._append(name, _lines([header]))
        self._save_state()
        # Last: a folder without this file was never begun.
        content = {"format": FORMAT, **asdict(self._recording), "layout": layout.to_json()}
        write_json(self.folder / TAP_FILE, content)

    def begin_again(self, initial_model: NDArray[np.float64] | None) -> None:
        """Go on after a killed server, whose strategy and model may have been lost."""
        self.continued = False
        if initial_model is not None:
            self._write_model(f"initial-{self.rounds}.npy", initial_model)

    def append(self, row: NDArray[np.float64], *, nodes: Iterable[int], weight: float) -> None:
        """Record a round: its row, the clients whose updates are in it, and their total weight."""
        assert self.layout is not None, "a recording begins with its layout"
        state, clients = self._state, [str(node) for node in nodes]
        self._append(_AGGREGATES, row.astype(np.float32).tobytes())
        self._rewrite_header(npy_header(np.dtype(np.float32), (state.rounds + 1, self.layout.dim)))
        self._append(_ROUNDS, _lines([(state.rounds, len(clients), f"{weight:.17g}")]))
        if self._recording.truth != "none":
            self._append(_PARTICIPATION, _lines((state.rounds, client) for client in clients))
        self.counts.add(clients)
        state.rounds += 1
        state.finished = False
        if state.rounds == self.counts.closes_at:
            self._close_window()
        self._save_state()

    def add_updates(self, updates: Mapping[int, NDArray[np.float64]]) -> None:
        """Add clients' updates of the latest round to the means that belong to the truth.

        They are written after the round is complete: a kill in between loses one update of a mean, and adds
        none twice.
        """
        folder = self.folder / UPDATES
        private_folder(folder)
        for node, update in updates.items():
            path = folder / f"{node}.npz"
            mean, rounds = np.zeros_like(update), 0
            if path.exists():
                with np.load(path, allow_pickle=False) as kept:
                    mean, rounds = kept["mean"].astype(np.float64), int(kept["rounds"])
            mean += (update - mean) / (rounds + 1)
            write_npz(path, mean=mean.astype(np.float32), rounds=np.array(rounds + 1))

    def finish(self) -> None:
        """The training is over: close the last window. No other process continues the recording.

        If windows became coarser, a part of a window would be too fine, and is not published.
        """
        if self.layout is None:
            return
        if self.counts.length and not self.counts.coarse and self.rounds > self.counts.window_start:
            self._close_window()
        self._state.finished = True
        self._save_state()

    def _close_window(self) -> None:
        self._append(COUNTS_FILE, _lines(self.counts.close(self.rounds)))

    def _write_model(self, name: str, model: NDArray[np.float64]) -> None:
        write_npy(self.folder / TRANSCRIPT / name, model.astype(np.float32))

    def _keeps(self, name: str) -> bool:
        if name == COUNTS_FILE:
            return self._recording.window is not None
        return name != _PARTICIPATION or self._recording.truth != "none"

    def _append(self, name: str, content: bytes) -> None:
        """Add bytes at the end of a file; a process that is killed afterwards leaves them there."""
        path, private = self.folder / name, name.startswith(TRUTH)
        mode = _PRIVATE_MODE if private else _PUBLIC_MODE
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "ab") as file:
            file.write(content)
            self._state.sizes[name] = file.tell()

    def _rewrite_header(self, header: bytes) -> None:
        """NumPy leaves room in a header for the number of rows to grow, so its length stays the same."""
        with (self.folder / _AGGREGATES).open("r+b") as file:
            file.write(header)

    def _save_state(self) -> None:
        with written_whole(self.folder / _STATE_FILE, private=True) as temporary:
            temporary.write_text(json.dumps(asdict(self._state)), encoding="utf-8")

    def _continue(self) -> None:
        """Take up the recording of a killed server; drop the parts of a round that it did not complete."""
        content = read_json(self.folder / TAP_FILE, "the recording of a tap")
        for name, wanted in asdict(self._recording).items():
            if content.get(name) != wanted:
                raise UserError(
                    f"{self.folder} was recorded with {name}={content.get(name)!r}, and this tap has "
                    f"{name}={wanted!r}: choose another folder, or the same setting"
                )
        with reading(self.folder / _STATE_FILE, "the state of a recording"):
            kept = json.loads((self.folder / _STATE_FILE).read_text(encoding="utf-8"))
            state = _State(**kept | {"counts": Counts(**kept["counts"])})
            layout = Layout.from_json(content["layout"])
        if state.finished:
            raise UserError(
                f"{self.folder} holds a finished recording of {state.rounds} rounds: choose another folder"
            )
        for name, size in state.sizes.items():
            path = self.folder / name
            if not path.exists() or path.stat().st_size < size:
                raise UserError(f"{path} is shorter than the tap left it: choose another folder")
            os.truncate(path, size)
        self._state, self.layout, self.continued = state, layout, True
        self._rewrite_header(npy_header(np.dtype(np.float32), (state.rounds, layout.dim)))

    def _clear_unbegun(self) -> None:
        """Remove what a server that was killed in the first round left; a `UserError` about other files."""
        ours = {self.folder / name for name in (_STATE_FILE, _AGGREGATES, *_HEADERS)}
        ours |= {self.folder / TRANSCRIPT / name for name in ("layers.json", INITIAL_MODEL)}
        files = {file for file in self.folder.rglob("*") if not file.is_dir()}
        files -= {self.folder / LOCK_FILE, *leftovers(self.folder)}
        if files - ours:
            raise UserError(f"{self.folder} holds other files: choose another folder for Tap(out=…)")
        for file in files:
            file.unlink()


def progress_of(folder: Path) -> tuple[int, bool]:
    """How many rounds of a recording are complete, and whether its training is over."""
    path = folder / _STATE_FILE
    with reading(path, "the state of a recording"):
        state = json.loads(path.read_text(encoding="utf-8"))
        return int(state["rounds"]), bool(state["finished"])


def _lines(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
