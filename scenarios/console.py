"""How far long work is: bars on a terminal and in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

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

from fedsim.core.progress import Progress, Steps, silent

Bar = Callable[[str], Progress]
"""Makes the progress of one piece of work, by its label."""

FIRST_LINE_S, LINES_EVERY_S = 20.0, 30.0
"""Seconds until the first line about a piece of work, and between lines. Short work prints none."""
_NOTEBOOK_EVERY_S = 0.2
"""Seconds between two pictures of a bar in a notebook."""


def progress_bars(*, shown: bool = True) -> AbstractContextManager[Bar]:
    """A function that makes labelled bars, or nothing at all unless they are `shown`.

    Bars are drawn on stderr, or in the notebook that calls. Where there is neither a terminal nor a notebook,
    lines on stderr tell about work that takes long. A bar appears with its first step, so that work that has
    not begun does not look stuck.
    """
    if not shown:
        return nullcontext(lambda label: silent)
    if in_notebook():
        return nullcontext(_notebook_bar)
    console = Console(stderr=True)
    return _terminal_bars(console) if console.is_terminal else nullcontext(lines_to(_print_line))


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _terminal_bars(console: Console) -> Iterator[Bar]:
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:

        def bar(label: str) -> Progress:
            task = bars.add_task(label, total=None, visible=False, start=False)

            def advance(done: int, total: int) -> None:
                if not bars.tasks[task].started:
                    bars.start_task(task)
                bars.update(task, completed=done, total=total, visible=True)

            return advance

        yield bar


def lines_to(write: Callable[[str], Any], clock: Callable[[], float] = time.monotonic) -> Bar:
    """Bars that write a line now and then, such as `fedsim: training: 40 of 100, about 90 s left`."""

    def bar(label: str) -> Progress:
        steps = Steps(clock)
        due = FIRST_LINE_S

        def advance(done: int, total: int) -> None:
            nonlocal due
            steps.update(done, total)
            if steps.seconds >= due and done < total:
                due = steps.seconds + LINES_EVERY_S
                write(f"fedsim: {label}: {steps}")

        return advance

    return bar


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _notebook_bar(label: str) -> Progress:
    """A bar in the output of a cell, which is redrawn in place."""
    from html import escape

    from IPython.display import HTML, display

    steps = Steps(time.monotonic)
    handle: Any = None
    drawn = 0.0

    def advance(done: int, total: int) -> None:
        nonlocal handle, drawn
        steps.update(done, total)
        if handle is not None and done < total and steps.seconds < drawn + _NOTEBOOK_EVERY_S:
            return
        drawn = steps.seconds
        bar = f"<progress value={done} max={max(total, 1)}></progress>"
        picture = HTML(f"<code>{escape(label):<10}</code> {bar} {escape(str(steps))}")  # type: ignore[no-untyped-call]
        if handle is None:
            handle = display(picture, display_id=True)  # type: ignore[no-untyped-call]
        else:
            handle.update(picture)

    return advance
