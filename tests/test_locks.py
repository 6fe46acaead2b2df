"""The lock covers pyproject.toml: every requirement has an allowed version, and every package a hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OWN_EXTRAS = PROJECT["project"]["name"] + "["
REQUIREMENTS = [
    Requirement(line)
    for line in [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(
            line
            for extra in PROJECT["project"]["optional-dependencies"].values()
            for line in extra
            if not line.startswith(OWN_EXTRAS)
        ),
    ]
]
HASH = re.compile(r" --hash=sha256:[0-9a-f]{64}(?= |$)")


def locked(*files):
    """The requirement and the number of hashes of every package in some files of the lock."""
    text = "\n".join((ROOT / "locks" / file).read_text(encoding="utf-8") for file in files)
    entries = [line for line in text.replace("\\\n", "").splitlines() if line and line[0] != "#"]
    return [(Requirement(HASH.sub("", entry)), len(HASH.findall(entry))) for entry in entries]


@pytest.mark.parametrize("torch", ["torch.txt", "torch-cpu.txt"])
def test_requirements_have_a_locked_version_that_they_allow(torch):
    versions = {
        canonicalize_name(package.name): Version(str(package.specifier).removeprefix("=="))
        for package, _ in locked("packages.txt", torch)
        if package.marker is None or package.marker.evaluate({"python_full_version": "3.11.0"})
    }
    for requirement in REQUIREMENTS:
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_every_locked_package_has_a_hash():
    packages = locked("packages.txt", "torch.txt", "torch-cpu.txt")
    assert len(packages) > 100
    assert not [str(package) for package, hashes in packages if not hashes]


def test_the_lock_names_no_index():
    assert "://" not in "".join(file.read_text(encoding="utf-8") for file in (ROOT / "locks").iterdir())
