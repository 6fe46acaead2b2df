"""Reading and writing files. A file is written whole or not at all: to a temporary file, then renamed.

A file that is read may hold anything: wrong content is a `UserError` of one line.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.core.errors import RunFailedError, UserError

_SUFFIX = ".fedsim-part"
_PRIVATE_FILE, _PRIVATE_FOLDER, _OTHERS = 0o600, 0o700, 0o077
"""Modes of a file and a folder that only their owner may use, and the bits of everybody else."""

_OF_THE_MACHINE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.EIO})
"""Numbers of an `OSError` that says nothing about the file that is read, or the place that was chosen."""

LARGEST_EXPANSION = 200
"""Largest size of an archive's member, relative to its compressed size. Measurements stay below 10."""
_LONGEST_REASON = 300
"""Characters of a parser's own message that are shown."""
_SMALL_MEMBER = 1 << 26
"""Members below this size, in bytes, may expand as much as they like."""


@contextmanager
def written_whole(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a path to write to; it becomes `path` only if the block ends without an exception.

    Only its owner may read a `private` file, or any file in a private folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_SUFFIX}")
    try:
        if private or not path.parent.stat().st_mode & _OTHERS:
            temporary.touch(mode=_PRIVATE_FILE)
            temporary.chmod(_PRIVATE_FILE)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.filename is None:  # a failed write does not say of which file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def private_folder(folder: Path) -> None:
    """Create the folder if need be; only its owner may enter it, and read the files written there later."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(_PRIVATE_FOLDER)


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes, in hexadecimal digits."""
    with reading(path, "a file of a run"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def filled_whole(folder: Path) -> Iterator[None]:
    """A block that fills a folder; an exception in it empties the folder, and removes it if it was new."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for file in folder.iterdir():
            file.unlink()
        if new:
            folder.rmdir()
        raise


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """A block that only parses a file, or the files of a folder, as `what`: see `parsing`."""
    check_regular(path)
    with parsing(f"{path}: not {what}"):
        yield


@contextmanager
def parsing(about: str) -> Iterator[None]:
    """A block that only parses: an exception in it is a `UserError` that begins with `about`.

    Damaged files make parsers raise exceptions of every kind, so none is listed here. Errors that no content
    causes, such as a full disk, pass unchanged.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            raise
        raise UserError(f"{about}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What is wrong with the content, in one line."""
    match error:
        case FileNotFoundError():
            return f"{error.filename} is missing"
        case KeyError():
            return f"{error.args[0]} is missing"
        case RecursionError():
            return "it is nested too deeply"
        case MemoryError():
            return f"it does not fit into memory: {error}".removesuffix(": ")
        case OSError(strerror=str(reason)):
            return reason
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def check_regular(path: Path) -> None:
    """A `UserError` if a file, or a file in a folder, is a pipe or a device: reading one may never end."""
    for file in path.iterdir() if path.is_dir() else (path,):
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise UserError(f"{file}: expected a file, and this is a pipe or a device")


def check_expansion(archive: zipfile.ZipFile) -> None:
    """A `ValueError` if a member of an archive claims to be far larger than data can be compressed."""
    for member in archive.infolist():
        if member.file_size > max(_SMALL_MEMBER, LARGEST_EXPANSION * member.compress_size):
            raise ValueError(
                f"{member.filename} would take {member.file_size / 1e9:.1f} GB, which is "
                f"{member.file_size // max(1, member.compress_size)} times its compressed size"
            )


def load_npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of an `.npz` file; call it in a block that parses."""
    with zipfile.ZipFile(path) as archive:
        check_expansion(archive)
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """A block that writes to the user's `--out`: an `OSError` in it is a `UserError` about that choice.

    A full disk is no mistake of the user's.
    """
    try:
        yield
    except shutil.Error as error:
        # Of a copied folder: source, destination and reason of every file, the reason in words only.
        reason = error.args[0][0][-1]
        fault = RunFailedError if os.strerror(errno.ENOSPC) in reason else UserError
        raise fault(f"--out {out}: cannot be written to: {reason}") from error
    except OSError as error:
        if error.errno in _OF_THE_MACHINE:
            raise
        raise UserError(f"--out {out}: cannot be written to: {error.strerror}") from error


def check_writable(folder: Path) -> None:
    """An `OSError` if the folder refuses new files; a folder that does not exist is not created.

    Better to find out before long work than after it.
    """
    while not folder.exists():
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        pass


def leftovers(folder: Path) -> set[Path]:
    """The temporary files that killed processes left in a folder and below."""
    return set(folder.rglob(f".*{_SUFFIX}"))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON whole; NaN is refused, because JSON has none."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file; `what` describes the file in error messages."""
    with reading(path, what):
        return dict(json.loads(path.read_text(encoding="utf-8")))


def write_npy(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write one array whole."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        # The same bytes as np.save, which does not say why a write failed, such as a full disk.
        file.write(npy_header(array.dtype, array.shape))
        file.write(np.ascontiguousarray(array).data)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file; the entries follow, row by row."""
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


def write_npz(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    """Write named arrays whole; the same arrays give the same bytes (NumPy dates its entries 1980)."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
