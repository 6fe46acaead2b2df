"""In a process of its own: operators, once declared, cannot be taken back."""

import subprocess
import sys

import pytest


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_torchvision_imports_beside_this_torch():
    done = run(
        "from fedsim.core.torchvision_compat import torchvision; "
        "print(torchvision().datasets.CIFAR10.__name__)"
    )
    assert done.stdout.strip() == "CIFAR10", done.stderr


def test_operators_are_declared_once():
    done = run(
        "from fedsim.core.torchvision_compat import declare_missing_operators as declare\n"
        "first = declare(); print(len(first) in (0, 2), declare())"
    )
    assert done.stdout.strip() == "True []", done.stderr


def test_the_shim_is_still_needed():
    """When a plain import works beside a CPU torch one day, the module can be deleted."""
    if run("import torch; assert torch.version.cuda").returncode == 0:
        pytest.skip("this torch is a CUDA build, beside which torchvision imports by itself")
    assert "torchvision::nms does not exist" in run("import torchvision").stderr
