"""The entry of the command: its version, and foreign packages in the place of ours."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "from fedsim.command import main; main()"


def run(*arguments, cwd, path=ROOT):
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["analytics", "attacks", "scenarios"])
def test_a_foreign_package_is_named_in_one_line(name, tmp_path):
    """Python looks into the current folder first, and an app has a folder of our name there."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = run("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert f"the package {name!r} in {tmp_path / name} is not the one of fedsim" in done.stderr


def test_version(tmp_path):
    done = run("--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fedsim ")


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_folder(tmp_path):
    """Built from a copy, because a build leaves files beside the sources."""
    source, site, empty = tmp_path / "source", tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    for package in ("fedsim", "analytics", "attacks", "scenarios"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True, capture_output=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    done = run("--version", cwd=empty, path=site)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fedsim {version}\n", "")
    done = run("run", "quickstart", "--set", "federation.rounds=2", "--workers", "1", cwd=empty, path=site)
    assert (done.returncode, done.stderr) == (0, "")
    assert (empty / "runs/quickstart/report.html").exists()
