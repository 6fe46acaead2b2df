"""A kind of input, and how its files come about."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Files = dict[str, bytes]


@dataclass(frozen=True)
class Kind:
    """A kind of input: its valid files, those that may be damaged, and the command that reads them."""

    name: str
    files: Files
    damaged: tuple[str, ...]
    command: tuple[str, ...]
    may_be_larger: bool = True
    """Whether larger numbers are harmless; those of a scenario may ask for days of training."""


def saved(save: Callable[..., None], *arrays: np.ndarray, **named: np.ndarray) -> bytes:
    """A file of NumPy."""
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def content_of(folder: Path) -> Files:
    """All files below a folder, by their path in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
