"""The manifest of a run: the SHA-256 of its files, so that a command notices a file that has changed.

It guards against mistakes, such as a file of another run, not against somebody who rewrites the manifest too.
Digests of the truth could confirm a guess at it, so the manifest is private.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import read_json, sha256_of, written_whole


class Manifest:
    """The digests of the files in a folder, by their paths from there.

    A part of the folder may be a link to another folder with a manifest: that one vouches for it.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, parts: Iterable[Path]) -> None:
        """Note the digests of these files and of all files in these folders. Digests that are there stay."""
        known = self._read() if self.file.exists() else {}
        for file in self._files(parts):
            name = self._name(file)
            known[name] = known.get(name) or sha256_of(file)
        self._write(known)

    def forget(self, parts: Iterable[Path]) -> None:
        """Drop the digests of files that are about to be written anew; nothing to do without a manifest."""
        if not self.file.exists():
            return
        gone = tuple(map(self._name, parts))
        self._write({name: digest for name, digest in self._read().items() if not _within(name, gone)})

    def check(self, parts: Iterable[Path]) -> None:
        """A `UserError` that names the first of these files, or of the files in these folders, that changed.

        A file without a digest is not checked: whoever was about to write it was interrupted.
        """
        parts = tuple(parts)
        self.check_links(parts)
        wanted = tuple(self._name(part) for part in parts if not part.is_symlink())
        for name, digest in self._read().items():
            file = self.file.parent / name
            if not _within(name, wanted):
                continue
            if not file.exists():
                raise UserError(f"{file} is missing since the run wrote it: restore it, or run it anew")
            if sha256_of(file) != digest:
                raise UserError(f"{file} has changed since the run wrote it: restore it, or run it anew")

    def check_links(self, parts: Iterable[Path]) -> None:
        """The same for parts that are links to another folder, by the manifest of that one."""
        for origin in (part.resolve() for part in parts if part.is_symlink()):
            Manifest(origin.parent / self.file.name).check([origin])

    def _files(self, parts: Iterable[Path]) -> Iterator[Path]:
        for part in parts:
            if part.is_file():
                yield part
            elif part.is_dir() and not part.is_symlink():
                yield from sorted(file for file in part.rglob("*") if file.is_file())

    def _name(self, file: Path) -> str:
        return file.relative_to(self.file.parent).as_posix()

    def _read(self) -> dict[str, str]:
        return {name: str(digest) for name, digest in read_json(self.file, "the digests of a run").items()}

    def _write(self, digests: dict[str, str]) -> None:
        with written_whole(self.file, private=True) as temporary:
            temporary.write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


def _within(name: str, parts: Iterable[str]) -> bool:
    return any(name == part or name.startswith(f"{part}/") for part in parts)
