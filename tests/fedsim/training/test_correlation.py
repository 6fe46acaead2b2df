"""Convolutions of any shape are those that torch computes, forwards and backwards."""

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, max_pool2d

from fedsim.training.stacked.correlation import Kernels, Pooled, correlate, correlate_backward

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
