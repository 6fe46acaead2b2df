"""What a person at a terminal sees: progress bars, a summary, and one line for a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from fedsim.progress import Progress

STDERR = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """A bar on stderr while the block runs; silent when nobody watches a terminal."""
    columns = (
        TextColumn(f"{label:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=STDERR, disable=not STDERR.is_terminal) as bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
