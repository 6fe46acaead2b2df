"""Damages: each is a function of a path, which holds the valid file."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from tests.helpers.fuzzing.kind import Kind


@dataclass(frozen=True)
class Case:
    """One damage to one file of a kind of input."""

    kind: Kind
    file: str
    damage: Callable[[Path], None]
    sealed_again: bool
    """Whether the digests of a run are computed again, so that the damage is found later."""


SPECIAL_TOKENS = (
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e-300",
    "9" * 5000,
    "true",
    '"',
    "é",
    "\0",
    "=1",
    "[",
)
OTHER_ARRAYS: tuple[Callable[[], np.ndarray], ...] = (
    lambda: np.array(1.0),
    lambda: np.zeros(0),
    lambda: np.zeros((0, 30)),
    lambda: np.zeros((12, 0)),
    lambda: np.zeros((12, 30)),
    lambda: np.ones((12, 30), dtype=np.int64),
    lambda: np.full((12, 30), np.nan),
    lambda: np.full((12, 30), 1e300),
    lambda: np.full((12, 30), 1e-300),
    lambda: np.ones((12, 30), dtype=np.complex128),
    lambda: np.ones((12, 30), dtype=bool),
    lambda: np.full((12, 30), "x"),
    lambda: np.zeros((12, 30), dtype=[("a", "f8"), ("b", "i4")]),
    lambda: np.zeros((12, 30), dtype="M8[s]"),
    lambda: np.zeros((12, 30), dtype=np.float16),
    lambda: np.zeros((2, 3, 4)),
    lambda: np.ones((1, 1)),
)


def _bytes_changed(at: float, length: int, new: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        place = int(at * len(content))
        path.write_bytes(content[:place] + new + content[place + length :])

    return damage


def _cut(at: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(at * len(content))])

    return damage


def _repeated(at: float, length: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        place = int(at * len(content))
        path.write_bytes(content[: place + length] + content[place:])

    return damage


def _token_replaced(number: int, by: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        tokens = list(re.finditer(rb"[^\s,=\[\]{}:\"]+", content))
        if tokens:
            token = tokens[number % len(tokens)]
            content = content[: token.start()] + by.encode() + content[token.end() :]
        path.write_bytes(content)

    return damage


def _array_replaced(number: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        array = OTHER_ARRAYS[number]()
        if path.suffix == ".npz":
            with np.load(path) as file:
                arrays = dict(file)
            arrays[sorted(arrays)[number % len(arrays)]] = array
            np.savez(path, **arrays)
        else:
            np.save(path.open("wb"), array)

    return damage


def _member_described_otherwise(offset: int, value: int) -> Callable[[Path], None]:
    """Change a byte that says how the first member of an archive is stored."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            content[archive.start_dir + offset] = value
        path.write_bytes(content)

    return damage


def no_ordinary_file(how: str) -> Callable[[Path], None]:
    """Put something else in the place of a file: a folder, a pipe, a link, or nothing."""

    def damage(path: Path) -> None:
        path.unlink()
        match how:
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "endless":
                path.symlink_to("/dev/zero")
            case "loop":
                path.symlink_to(path.name)
            case "empty":
                path.touch()
            case "text":
                path.write_text("no such thing\n")

    return damage


PLACES = st.floats(0, 1, exclude_max=True)


def damages(kind: Kind, file: str) -> st.SearchStrategy[Callable[[Path], None]]:
    """All damages to a file of this kind."""
    inserted = st.binary(max_size=12)
    if not kind.may_be_larger:
        inserted = inserted.map(lambda new: re.sub(rb"[0-9eE]", b"", new))
    ways = [
        st.builds(_bytes_changed, PLACES, st.integers(0, 12), inserted),
        st.builds(_bytes_changed, PLACES, st.just(1), inserted),
        st.builds(_cut, PLACES),
        st.builds(
            no_ordinary_file,
            st.sampled_from(["gone", "folder", "pipe", "endless", "loop", "empty", "text"]),
        ),
    ]
    if kind.may_be_larger:
        ways.append(st.builds(_repeated, PLACES, st.integers(1, 40)))
    if Path(file).suffix in {".csv", ".json", ".jsonl", ".log", ".toml", ".safetensors"}:
        ways += 3 * [st.builds(_token_replaced, st.integers(0, 200), st.sampled_from(SPECIAL_TOKENS))]
    if Path(file).suffix in {".npy", ".npz"}:
        ways += 2 * [st.builds(_array_replaced, st.integers(0, len(OTHER_ARRAYS) - 1))]
    if Path(file).suffix in {".npz", ".zip", ".pt"}:
        ways.append(st.builds(_member_described_otherwise, st.integers(8, 45), st.integers(0, 255)))
    return st.one_of(ways)


def cases(kind: Kind) -> st.SearchStrategy[Case]:
    """All cases of a kind of input."""
    return st.sampled_from(kind.damaged).flatmap(
        lambda file: st.builds(Case, st.just(kind), st.just(file), damages(kind, file), st.booleans())
    )
