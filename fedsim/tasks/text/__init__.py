"""Next-word prediction."""

from fedsim.tasks.text.next_word import NextWord

__all__ = ["NextWord"]
