"""`fedsim data` as a user meets it, on small copies."""

import json
import signal
import sys

import numpy as np
import pytest

from fedsim.core.settings import members
from fedsim.core.torchvision_compat import torchvision
from fedsim.data import DataSource


@pytest.fixture
def small_cifar10(tmp_path):
    """A data folder with a tiny copy in it."""
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "data" / "cifar10.npz",
        x_train=rng.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8),
        y_train=np.arange(10),
        x_test=rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8),
        y_test=np.arange(2),
    )
    return tmp_path / "data"


def test_list_says_what_is_there(fedsim, small_cifar10):
    found = json.loads(fedsim("data", "list", "--json").stdout)
    assert list(found) == list(members(DataSource))
    assert found["cifar10"]["copy"].startswith("data/cifar10.npz")
    assert found["lfw"]["copy"] == "not in data: fedsim data get lfw"
    assert found["synthetic"]["copy"] == "generated: nothing to get"
    assert "photographs" in fedsim("data", "list").stdout


def test_check_describes_a_copy(fedsim, small_cifar10):
    done = fedsim("data", "check", "cifar10", "--json")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["training images"] == "10"
    assert found["pixels"] == "32×32"
    assert found["release"].startswith("a part of it: 10 of 50000")
    by_file = fedsim("data", "check", "cifar10", small_cifar10 / "cifar10.npz")
    assert "test images       2\n" in by_file.stdout


def test_get_of_what_is_there_checks_it(fedsim, small_cifar10):
    before = (small_cifar10 / "cifar10.npz").read_bytes()
    done = fedsim("data", "get", "cifar10")
    assert done.status == 0, done.stderr
    assert "a part of it" in done.stdout
    assert (small_cifar10 / "cifar10.npz").read_bytes() == before


def test_get_of_what_needs_no_getting(fedsim, tmp_path):
    done = fedsim("data", "get", "synthetic")
    assert done.status == 0, done.stderr
    assert done.stdout == "generated: nothing to get\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "cifar11"], "cifar11: no such data set, expected one of synthetic, cifar10"),
        (["check", "cifar11"], "cifar11: no such data set"),
        (["get", "lfw", "--into", "faces"], "lfw_attributes.txt into faces/"),
        (["get", "folder"], "data/CLASS_NAME/*.png"),
        (["check", "lfw"], "data holds no LFW (expected lfw_funneled/Name/Name_0001.jpg"),
        (["check", "cifar100", "gone.npz"], "there is no file gone.npz"),
        (["check", "folder", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(fedsim, tmp_path, arguments, message):
    done = fedsim("data", *arguments)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_copy_is_named_by_both(fedsim, small_cifar10):
    file = small_cifar10 / "cifar10.npz"
    file.write_bytes(file.read_bytes()[:-100])
    for command in ("check", "get"):
        done = fedsim("data", command, "cifar10")
        assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert "data/cifar10.npz is damaged" in done.stderr
    assert "remove it, and get can fetch it again" in done.stderr


def test_get_that_is_terminated_leaves_nothing(fedsim, tmp_path, monkeypatch):
    """npm, played by a script, ends the command that waits for it."""
    (tmp_path / "npm").write_text(
        f"#!{sys.executable}\nimport os, signal\nos.kill(os.getppid(), signal.SIGTERM)\nsignal.pause()\n"
    )
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torchvision().datasets.CIFAR10, "url", "file:///nowhere")
    before = signal.getsignal(signal.SIGTERM)
    done = fedsim("data", "get", "cifar10")
    assert done.status == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["npm"]
    assert signal.getsignal(signal.SIGTERM) == before
