"""How long-running work reports its progress."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then with the steps done so far and the total number of steps."""

    def __call__(self, done: int, total: int) -> None:
        """`done` steps of `total`."""


def silent(done: int, total: int) -> None:
    """Ignore the progress."""
