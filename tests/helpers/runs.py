"""Runs whose files a test has changed."""

from pathlib import Path

from scenarios.run.directory import RunDirectory


def reseal(path: Path) -> None:
    """Note the digests of a run's files as they are now, so that commands read what a test has put there."""
    directory = RunDirectory(path)
    directory.manifest.file.unlink()
    with directory.sealed():
        pass
