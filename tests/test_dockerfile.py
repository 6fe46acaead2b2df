"""The Dockerfile: linted, and its steps run without Docker, with a stand-in for pip."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def instructions():
    """(instruction, arguments) in order, with continued lines joined and comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


STEPS = instructions()
RUNS = [" ".join(text.split()) for name, text in STEPS if name == "RUN"]


def copied():
    """The sources that are copied from this folder."""
    steps = [shlex.split(text) for name, text in STEPS if name == "COPY"]
    return [source for words in steps if not words[0].startswith("--from") for source in words[:-1]]


def test_bases_are_named_by_version():
    bases = [text.split()[0] for name, text in STEPS if name == "FROM"]
    assert bases == ["python:3.11-slim"] * 2


def test_it_runs_as_a_user_without_rights():
    names = [name for name, _ in STEPS]
    users = [text for name, text in STEPS if name == "USER"]
    assert users == ["fedsim"]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]
    assert "useradd --create-home --uid 1000 fedsim" in RUNS[-1]


def test_the_entry_point_is_the_command():
    """In JSON form, so that signals reach it."""
    entry = json.loads(next(text for name, text in STEPS if name == "ENTRYPOINT"))
    assert entry == ["fedsim"]
    assert entry[0] in PROJECT["project"]["scripts"]


def test_everything_that_the_build_needs_is_copied_and_sent():
    packages = [
        pattern.removesuffix("*") for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    ]
    needed = {*packages, "pyproject.toml", "locks", PROJECT["project"]["readme"]}
    needed |= set(PROJECT["project"]["license-files"])
    assert set(copied()) == needed
    assert all((ROOT / source).exists() for source in needed)
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == needed


def test_nothing_is_fetched_unchecked():
    assert not [text for name, text in STEPS if name == "ADD"]
    text = (ROOT / "Dockerfile").read_text()
    for word in ("curl", "wget", "sudo", "apt-get", "://", ":latest"):
        assert word not in text
    assert "--no-cache-dir" in RUNS[0]


STAND_IN = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python";;
    *torch-cpu.txt) exit "$TORCH_CPU";;
esac
"""


@pytest.mark.parametrize("cpu_build", [True, False])
def test_the_steps_of_the_build(tmp_path, cpu_build):
    """A stand-in for Python writes down how it is called, and finds a CPU build of torch or none."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    calls = tmp_path / "calls"
    script = RUNS[0].replace("/opt/fedsim", str(tmp_path / "venv"))
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "CALLS": str(calls),
        "TORCH_CPU": str(int(not cpu_build)),
    }
    subprocess.run(["/bin/sh", "-eu", "-c", script], env=environment, check=True, capture_output=True)
    pip, locked = "-m pip --no-cache-dir", "install --no-deps --require-hashes --requirement"
    fallback = [] if cpu_build else [f"{pip} {locked} locks/torch.txt"]
    assert calls.read_text().splitlines() == [
        f"-m venv {tmp_path / 'venv'}",
        f"{pip} {locked} locks/packages.txt",
        f"{pip} {locked} locks/torch-cpu.txt",
        *fallback,
        f"{pip} install --no-deps --no-build-isolation .",
        f"{pip} check",
    ]
    for call in calls.read_text().split():
        if call.startswith("locks/"):
            assert (ROOT / call).exists()


def test_a_failed_step_ends_the_build(tmp_path):
    script = RUNS[0].replace("python -m venv", "false")
    assert subprocess.run(["/bin/sh", "-c", script], check=False, cwd=tmp_path).returncode != 0


@pytest.mark.slow
def test_what_is_copied_can_be_installed(tmp_path):
    """The last step of the build, on the files that are copied, into a folder of its own."""
    for source in copied():
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, tmp_path / "src" / source, ignore=ignored)
        else:
            (tmp_path / "src").mkdir(exist_ok=True)
            shutil.copy(ROOT / source, tmp_path / "src")
    pip = [sys.executable, "-m", "pip", "--no-cache-dir", "--disable-pip-version-check", "install"]
    site = tmp_path / "site"
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", site, "."],
        cwd=tmp_path / "src",
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [sys.executable, site / "bin/fedsim", "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"fedsim {PROJECT['project']['version']}\n"
