"""Reads texts with their authors: plays, a folder with a file per person, JSON lines, or a CSV table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from fedsim.core.errors import UserError
from fedsim.core.files import reading

Texts = dict[str, list[str]]
"""Person → texts, both in the order of the data."""

LARGEST_FIELD = 1 << 24
"""Characters in a field of a CSV table."""


def read_people(path: Path, client_field: str, text_field: str) -> Texts:
    """The texts at a path, by person; a `UserError` says what is wrong with them.

    A folder holds a .txt file per person. A .jsonl or .csv file has a field for the person and one for the
    text. A .txt file holds plays: speeches separated by blank lines, each after a line `Speaker:`.
    """
    if path.is_dir():
        people = _folder(path)
    elif not path.exists():
        raise UserError(f"data.path: there is no {path} (expected a folder, or a .txt, .jsonl or .csv file)")
    elif path.suffix in (".jsonl", ".ndjson"):
        people = _collected(path, _json_lines(path, client_field, text_field))
    elif path.suffix == ".csv":
        people = _collected(path, _table(path, client_field, text_field))
    elif path.suffix == ".txt":
        people = _collected(path, _speeches(path))
    else:
        raise UserError(f"data.path: {path}: expected a folder, or a .txt, .jsonl or .csv file")
    if not people:
        raise UserError(f"data.path: {path} holds no text")
    return people


def _folder(folder: Path) -> Texts:
    files = sorted(
        file for file in folder.iterdir() if file.suffix == ".txt" and not file.name.startswith(".")
    )
    if not files:
        raise UserError(f"data.path: {folder} holds no .txt files (expected one per person)")
    return {file.stem: [_content(file)] for file in files}


def _content(file: Path) -> str:
    """A text file in UTF-8, with or without a byte-order mark."""
    with reading(file, "a text in UTF-8"):
        return file.read_text(encoding="utf-8-sig")


def _collected(path: Path, texts: Iterator[tuple[str, str]]) -> Texts:
    people: Texts = {}
    with reading(path, "a file of texts in UTF-8"):
        for person, text in texts:
            people.setdefault(person, []).append(text)
    return people


def _speeches(path: Path) -> Iterator[tuple[str, str]]:
    for speech in path.read_text(encoding="utf-8-sig").split("\n\n"):
        speaker, _, text = speech.strip().partition("\n")
        if speaker.endswith(":") and text.strip():
            yield speaker[:-1], text


def _json_lines(path: Path, client_field: str, text_field: str) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                entry = json.loads(line)
                if (
                    not isinstance(entry, dict)
                    or not isinstance(entry.get(text_field), str)
                    or client_field not in entry
                ):
                    raise ValueError(
                        f"line {number}: expected an object with {client_field} and a text {text_field}"
                    )
                yield str(entry[client_field]), entry[text_field]


def _table(path: Path, client_field: str, text_field: str) -> Iterator[tuple[str, str]]:
    csv.field_size_limit(LARGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        for field in (client_field, text_field):
            if field not in (rows.fieldnames or ()):
                raise ValueError(f"there is no column {field}: see data.client_field and data.text_field")
        for number, row in enumerate(rows, start=2):
            if row[client_field] is None or row[text_field] is None:
                raise ValueError(f"row {number} is too short")
            if not row[client_field].strip():
                raise ValueError(f"row {number}: {client_field} is empty")
            yield row[client_field], row[text_field]
