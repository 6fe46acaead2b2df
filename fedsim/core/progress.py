"""How long-running work tells how far it is, without knowing whether anybody watches."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then with the steps done so far and the steps there are in all."""

    def __call__(self, done: int, total: int) -> None:
        """`done` steps of `total`."""


def silent(done: int, total: int) -> None:
    """Nobody watches."""
