"""Downloading a data set: tries one route after the other, and leaves a complete copy or nothing.

A download is checked in a temporary folder beside its destination, and then moved.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import shutil
import tarfile
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.core.errors import UserError
from fedsim.core.progress import Progress, silent

STALL_LIMIT_S = 30.0
"""Seconds without data after which a connection is given up."""

_DOWNLOAD_CHUNK_BYTES = 2**20


class UnavailableError(Exception):
    """One route to a data set failed; the message says why in one line."""


@dataclass(frozen=True)
class Fetching:
    """The destination of a copy, the time limit of one route, and the progress (in megabytes)."""

    into: Path
    time_limit_s: float = 1800.0
    progress: Progress = silent

    def deadline(self) -> Callable[[], None]:
        """A function to call now and then; it raises `UnavailableError` once the time limit has passed."""
        end = time.monotonic() + self.time_limit_s

        def check() -> None:
            if time.monotonic() > end:
                raise UnavailableError(f"not finished after {self.time_limit_s:g} seconds")

        return check


Route = Callable[[Fetching], None]


def first_open(name: str, routes: Mapping[str, Route], fetching: Fetching, *, otherwise: str) -> None:
    """Try the routes in turn until one succeeds; a `UserError` with all reasons if none does.

    `name` is the data set; `otherwise` tells the user how to get it by hand.
    """
    reasons = []
    for way, route in routes.items():
        try:
            return route(fetching)
        except UnavailableError as error:
            reasons.append(f"{way}: {error}")
    raise UserError(f"{name} could not be downloaded ({'; '.join(reasons)}): {otherwise}")


@contextmanager
def workshop(into: Path) -> Iterator[Path]:
    """A temporary folder inside `into`. If `into` was created for it and stays empty, both are removed."""
    new = not into.exists()
    try:
        into.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".get-", dir=into) as folder:
                yield Path(folder)
        finally:
            if new and not any(into.iterdir()):
                into.rmdir()
    except OSError as error:
        raise UserError(f"--into {into}: cannot be written to: {error.strerror or error}") from error


def torchvision_archive(data_set: Any, fetching: Fetching) -> None:
    """Download the archive of a torchvision class, check its MD5 and unpack it as torchvision expects."""
    with workshop(fetching.into) as folder:
        archive = folder / data_set.filename
        _download(data_set.url, archive, data_set.tgz_md5, fetching)
        unpack(archive, folder)
        if not (folder / data_set.base_folder).is_dir():
            raise UnavailableError(f"the archive holds no {data_set.base_folder}")
        (folder / data_set.base_folder).rename(fetching.into / data_set.base_folder)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the files in a .tar.gz; a member that points outside the folder is refused."""
    root = folder.resolve()
    try:
        # By hand: early releases of Python 3.11 have no safe filter for tar archives.
        with tarfile.open(archive, "r:gz") as tar:
            for member in filter(tarfile.TarInfo.isfile, tar):
                file, content = (root / member.name).resolve(), tar.extractfile(member)
                if not file.is_relative_to(root):
                    raise UnavailableError(f"{archive.name} is damaged: {member.name} lies outside")
                assert content is not None
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("wb") as target:
                    shutil.copyfileobj(content, target)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnavailableError(f"{archive.name} is damaged: {error}") from error


def _download(url: str, file: Path, md5: str, fetching: Fetching) -> None:
    check, digest = fetching.deadline(), hashlib.md5(usedforsecurity=False)
    with file.open("wb") as target:
        for chunk, size in _chunks(url):
            target.write(chunk)
            digest.update(chunk)
            fetching.progress(target.tell() // 10**6, size // 10**6)
            check()
    if digest.hexdigest() != md5:
        raise UnavailableError(f"the download is not {file.name}: its MD5 is {digest.hexdigest()}, not {md5}")


def _chunks(url: str) -> Iterator[tuple[bytes, int]]:
    """Chunks of a response, each with the size of the whole (0 if the server does not say)."""
    try:
        with urllib.request.urlopen(url, timeout=STALL_LIMIT_S) as response:
            size = int(response.headers.get("Content-Length", 0))
            # Not `read`, which waits for a whole chunk: a very slow server would escape the time limit.
            while chunk := response.read1(_DOWNLOAD_CHUNK_BYTES):
                yield chunk, size
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = str(getattr(error, "reason", error))
        raise UnavailableError(" ".join(reason.split()) or type(error).__name__) from error
