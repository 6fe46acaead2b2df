"""Progress bars on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from fedsim.core.progress import Progress


@contextmanager
def progress_bars() -> Iterator[Callable[[str], Progress]]:
    """Yield a function that makes labelled bars on stderr; without a terminal they stay silent.

    A bar appears with its first step, so that work that has not begun does not look stuck.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:

        def bar(label: str) -> Progress:
            task = bars.add_task(label, total=None, visible=False, start=False)

            def advance(done: int, total: int) -> None:
                if not bars.tasks[task].started:
                    bars.start_task(task)
                bars.update(task, completed=done, total=total, visible=True)

            return advance

        yield bar
