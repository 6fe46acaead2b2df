"""Convolutions of any shape are those that torch computes, forwards and backwards."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, max_pool2d

from fedsim.training.stacked.correlation import Kernels, Pooled, correlate, correlate_backward

ROOT = Path(__file__).parents[3]

DIGEST = """
import hashlib, sys
import numpy as np
from llvmlite import binding
if sys.argv[1] == "few":
    binding.get_host_cpu_features = dict
from fedsim.training.stacked import vectors
from fedsim.training.stacked.correlation import Kernels, Pooled, correlate, correlate_backward
print(len(vectors._AT_A_TIME))
digest, rng = hashlib.sha256(), np.random.default_rng(0)
for outputs, channels, size, kernel in ((6, 3, 32, 5), (16, 6, 14, 5), (32, 16, 18, 3)):
    x, weight = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in ((1, 2, channels, size, size), (1, outputs, channels, kernel, kernel))
    )
    side = (size - kernel + 1) // 2
    pooled = Pooled(*(np.empty((1, 2, outputs, side, side), kind) for kind in (np.float32, np.uint32)))
    correlate(x, Kernels(weight, weight[:, :, 0, 0, 0]), 2, pooled)
    by, below = Kernels(np.empty_like(weight), np.empty((1, outputs), np.float32)), np.empty_like(x)
    correlate_backward(pooled, x, weight, by, below)
    for each in (*pooled, by.weight, below):
        digest.update(each.tobytes())
print(digest.hexdigest())
"""

# Rounding in another order, relative to the largest number.
TOLERANCE = 1e-5


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize(
    ("outputs", "channels", "size", "kernel"),
    [
        (1, 1, (8, 9), (3, 3)),
        (6, 3, (32, 32), (5, 5)),
        (16, 6, (14, 14), (5, 5)),
        (16, 2, (6, 6), (5, 5)),
        (33, 5, (9, 10), (2, 3)),
    ],
)
def test_like_torch(outputs, channels, size, kernel, pool):
    """Also with lines that are shorter than a vector, and outputs that do not fill the last one."""
    rng = np.random.default_rng(0)
    x, weight, bias = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in [(2, 3, channels, *size), (2, outputs, channels, *kernel), (2, outputs)]
    )
    rows, columns = ((side - length + 1) // pool for side, length in zip(size, kernel, strict=True))
    values = np.empty((2, 3, outputs, rows, columns), np.float32)
    places = np.empty(values.shape, np.uint32)
    correlate(x, Kernels(weight, bias), pool, Pooled(values, places))
    gradient = np.empty_like(values)
    rng.standard_normal(out=gradient, dtype=np.float32)
    gradient[rng.random(values.shape) < 0.4] = 0
    by, below = Kernels(np.empty_like(weight), np.empty_like(bias)), np.empty_like(x)
    correlate_backward(Pooled(gradient, places), x, weight, by, below)
    for copy in range(2):
        inputs = [torch.tensor(each[copy], requires_grad=True) for each in (x, weight, bias)]
        images, weights, biases = inputs
        expected = max_pool2d(conv2d(images, weights, biases), pool)
        expected.backward(torch.tensor(gradient[copy]))
        gradients = [each.grad for each in inputs]
        for ours, theirs in zip((values, below, *by), (expected.detach(), *gradients), strict=True):
            assert np.abs(ours[copy] - theirs.numpy()).max() <= TOLERANCE * theirs.abs().max()


@pytest.mark.slow
def test_vector_loops_do_not_depend_on_the_processor():
    """Those for a processor with few short registers leave the same bytes as those for this one.

    The gradient in a bias is left out: it is a plain sum, which compilers order as they like.
    """

    def printed(registers, **environment):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST, registers],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    at_a_time, digest = printed("few", NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx,+avx2,+fma")
    assert at_a_time == "1"
    assert printed("own")[1] == digest
