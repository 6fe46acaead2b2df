"""What a folder holds: runs, sweeps, evaluations and audits, as they are now.

Files may be half-way or wrong: an entry that cannot be read says so, and the others are shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import read_json
from fedsim.core.locks import is_busy
from fedsim.records import rounds_recorded
from scenarios.run.directory import RunDirectory
from scenarios.run.history import Row, read_curve
from scenarios.run.result import Result
from scenarios.run.scenario import read_toml

PAGES = ("report.html", "sweep.html", "evaluation.html")
"""The pages of entries, by their names."""
_HIDDEN = frozenset({"truth", "transcript", "inference", "trainings", "tensorboard"})
"""Folders inside runs and sweeps that hold no entries of their own."""
_DEEPEST = 6


@dataclass(frozen=True)
class Entry:
    """One row of the page. `path` is relative to the folder that is viewed, in POSIX form."""

    path: str
    kind: str
    state: str
    title: str = ""
    progress: float | None = None
    """Share of the rounds or points that are done, while they are under way."""
    link: str | None = None
    """The entry's page, relative to the folder."""
    figures: dict[str, float | None] = field(default_factory=dict)
    metric: str = "accuracy"
    history: tuple[Row, ...] = ()


def entries(root: Path) -> list[Entry]:
    """All entries below a folder, itself included, in the order of their paths."""
    return sorted(_below(root, root, 0), key=lambda entry: entry.path)


def _below(folder: Path, root: Path, depth: int) -> Iterator[Entry]:
    try:
        names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in os.scandir(folder)}
    except OSError:
        return
    yield from _entry(folder, root, names)
    if depth < _DEEPEST:
        for name, is_folder in names.items():
            if is_folder and name not in _HIDDEN and not name.startswith("."):
                yield from _below(folder / name, root, depth + 1)


def _entry(folder: Path, root: Path, names: dict[str, bool]) -> Iterator[Entry]:
    path = folder.relative_to(root).as_posix()
    try:
        if "scenario.toml" in names and "transcript" in names:
            yield _run(folder, path)
        elif "sweep.toml" in names or "points" in names:
            yield _sweep(folder, path, names)
        elif "report.html" in names and "clients.csv" in names:
            yield _audit(folder, path)
    except UserError as error:
        yield Entry(path, "unknown", "unreadable", str(error))


def _run(folder: Path, path: str) -> Entry:
    run = RunDirectory(folder)
    settings = read_toml(run.scenario)
    total = int(settings.get("federation", {}).get("rounds", 0)) or 1
    title, busy = str(settings.get("title", "")), is_busy(folder)
    history = tuple(read_curve(run.history))
    if not run.result.exists():
        done = rounds_recorded(run.transcript) / total
        state = ("attacking" if done >= 1 else "training") if busy else "interrupted"
        return Entry(path, "run", state, title, progress=done, history=history)
    result = Result.read(run.result)
    found, best = result.disaggregation, result.disaggregation.ceiling
    figures = {
        "guess": found.baselines.counts_only_ones_found,
        "attack": found.ones_found,
        "ceiling": best.ones_found if best else None,
        "metric": result.training.test_accuracy,
    }
    return Entry(
        path,
        "run",
        "attacking" if busy else "finished",
        f"{result.title}, seed {result.seed}",
        link=_page(folder, path, "report.html"),
        figures=figures,
        metric=result.training.metric,
        history=history,
    )


def _sweep(folder: Path, path: str, names: dict[str, bool]) -> Entry:
    kind, page = ("evaluation", "evaluation.html") if "evaluation.html" in names else ("sweep", "sweep.html")
    title = str(read_toml(folder / "sweep.toml").get("title", "")) if "sweep.toml" in names else ""
    points = [point for point in (folder / "points").iterdir() if point.is_dir()] if "points" in names else []
    done = sum((point / "result.json").exists() for point in points)
    busy = is_busy(folder)
    state = "running" if busy else "finished" if page in names else "interrupted"
    progress = done / len(points) if points and busy else None
    said = f"{title}; {done} points done" if title else f"{done} points done"
    return Entry(path, kind, state, said, progress=progress, link=_page(folder, path, page))


def _audit(folder: Path, path: str) -> Entry:
    result = read_json(folder / "result.json", "the result of an audit")
    said = str(result.get("conclusion") or result.get("verdict") or "")
    return Entry(path, "audit", "finished", said, link=_page(folder, path, "report.html"))


def _page(folder: Path, path: str, name: str) -> str | None:
    if not (folder / name).exists():
        return None
    return name if path == "." else f"{path}/{name}"
