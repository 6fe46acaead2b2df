"""How long-running work reports its progress."""

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Called now and then with the steps done so far and the total number of steps."""

    def __call__(self, done: int, total: int) -> None:
        """`done` steps of `total`."""


def silent(done: int, total: int) -> None:
    """Ignore the progress."""


class Steps:
    """How far a piece of work is, and how long the rest will take at the same speed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: float | None = None
        self._first = self._done = self._total = 0
        self.seconds = 0.0
        """Seconds since the first step that was told."""

    def update(self, done: int, total: int) -> None:
        """`done` steps of `total`."""
        if self._began is None:
            # Work that continues has steps that took no time now.
            self._began, self._first = self._clock(), done
        self.seconds = self._clock() - self._began
        self._done, self._total = done, total

    @property
    def seconds_left(self) -> float | None:
        """An estimate; None as long as there is nothing to base it on."""
        done = self._done - self._first
        return (self._total - self._done) * self.seconds / done if done > 0 else None

    def __str__(self) -> str:
        said = f"{self._done} of {self._total}"
        left = self.seconds_left
        return said if left is None or self._done >= self._total else f"{said}, about {_duration(left)} left"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
