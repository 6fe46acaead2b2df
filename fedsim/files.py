"""Files are written whole or not at all: beside their place first, then renamed into it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it becomes `path` only if the block ends without an exception."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON whole; NaN is refused, because JSON has none."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_npy(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write one array whole."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    """Write named arrays whole; the same arrays give the same bytes (NumPy dates its entries 1980)."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
