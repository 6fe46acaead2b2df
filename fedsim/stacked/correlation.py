"""The loops of a convolution with pooling, compiled.

They work on one image after the other, so that all they touch stays in the nearest cache.

Forwards, a plane (one channel of an image) is shifted as a whole: an output plane is the sum of all input
planes at all shifts, each times one weight. Lines get a few numbers at their ends that mean nothing, and
nobody reads those. Backwards, pooling makes it cheap: a pooled pixel comes from one place, so that three
places in four have no gradient, and of the rest an activation may stop half. Each that is left touches a
patch of the image, which is a few runs of memory if channels come last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, cast

import numba
import numpy as np
from numpy.typing import NDArray

from fedsim.stacked.vectors import add_eight

Floats = NDArray[np.float32]

# Sums may be taken in any order. What is not a number stays none, so that a training that diverges shows.
_LIBERTIES = {"contract", "reassoc"}
_compiled = numba.njit(fastmath=_LIBERTIES, error_model="numpy", nogil=True, cache=True)
# Part of another loop: a call would count references to every array that it hands over.
_inlined = numba.njit(inline="always", fastmath=_LIBERTIES, error_model="numpy", nogil=True, cache=True)


class Kernels(NamedTuple):
    """A convolution's parameters, or the gradients in them."""

    weight: Floats
    """(copies, outputs, channels, high, wide)"""
    bias: Floats
    """(copies, outputs)"""


class Pooled(NamedTuple):
    """What a convolution puts out after pooling, or the gradient in it."""

    values: Floats
    """(copies, batch, outputs, rows, columns)"""
    places: NDArray[np.uint32]
    """Where each comes from: the upper left corner of its patch, counted along a plane of the image."""


@_inlined
def _add_shifted(seen: Floats, one: Floats, two: Floats, first: Floats, second: Floats, wide: int) -> None:
    """Add a line of one kernel times the image to one output plane, and that of another to another."""
    for i in range(len(first)):
        to_first, to_second = first[i], second[i]
        for right in range(wide):
            to_first += one[right] * seen[i + right]
            to_second += two[right] * seen[i + right]
        first[i], second[i] = to_first, to_second


@_inlined
def _choose(found: Floats, pool: int, width: int, values: Floats, places: NDArray[np.uint32]) -> None:
    """The largest of each block of an output plane, the first of those that are alike, and where it is."""
    rows, columns = values.shape
    for row in range(rows):
        for column in range(columns):
            corner = pool * (row * width + column)
            best, place = found[corner], corner
            for down in range(pool):
                for right in range(pool):
                    rival = corner + down * width + right
                    place = rival if found[rival] > best else place
                    best = max(found[rival], best)
            values[row, column] = best
            places[row, column] = place


@cache
def pooled_correlation(wide: int, pool: int) -> Callable[[Floats, Kernels, Pooled], None]:
    """`correlate(x, kernels, out)` for kernels of this width: its loops over constants can be unrolled.

    `out` gets the largest output of each `pool` × `pool` block, for images `x` (copies, batch, channels,
    height, width).
    """

    @_compiled
    def correlate(x: Floats, kernels: Kernels, out: Pooled) -> None:
        copies, batch, channels, height, width = x.shape
        outputs, high = kernels.weight.shape[1], kernels.weight.shape[3]
        # Whole vectors, several at a time: a rest would be dealt with one by one.
        span = -(-((height - high + 1) * width) // 32) * 32
        image = np.zeros(channels * height * width + span + wide, np.float32)
        sums = np.empty((2, span), np.float32)
        for copy in range(copies):
            weight, bias = kernels.weight[copy], kernels.bias[copy]
            for number in range(batch):
                image[: channels * height * width] = x[copy, number].ravel()
                # Two outputs at a time, for one reading of the image.
                for output in range(0, outputs, 2):
                    other = min(output + 1, outputs - 1)
                    sums[0] = bias[output]
                    sums[1] = bias[other]
                    for channel in range(channels):
                        for down in range(high):
                            begin = (channel * height + down) * width
                            one, two = weight[output, channel, down], weight[other, channel, down]
                            _add_shifted(image[begin : begin + span + wide], one, two, sums[0], sums[1], wide)
                    for each in range(output, other + 1):
                        values, places = out.values[copy, number, each], out.places[copy, number, each]
                        _choose(sums[each - output], pool, width, values, places)

    return cast("Callable[[Floats, Kernels, Pooled], None]", correlate)


@_inlined
def _add_run(to: Floats, at: int, factor: np.float32, of: Floats, begin: int, length: int) -> None:
    """`to[at : at + length] += factor * of[begin : begin + length]`, for a length of whole vectors."""
    for step in range(0, length, 8):
        add_eight(to, at + step, factor, of, begin + step)


@_compiled
def pull_back(above: Pooled, x: Floats, weight: Floats, by: Kernels, below: Floats) -> None:
    """From the gradient in what `correlate` put out to those in the kernels, `by`, and in `x`, `below`.

    An empty `below` is left alone.
    """
    copies, batch, channels, height, width = x.shape
    outputs, high, wide = weight.shape[1], weight.shape[3], weight.shape[4]
    # A patch is as many runs as the kernel is high. They are whole vectors: beyond the patch a kernel is 0.
    run = -(-wide * channels // 8) * 8
    image = np.zeros(height * width * channels + run, np.float32)
    by_image = np.zeros_like(image)
    kernels = np.zeros((outputs, high * run), np.float32)
    by_kernels = np.empty_like(kernels)
    for copy in range(copies):
        for output in range(outputs):
            for channel in range(channels):
                for right in range(wide):
                    begin = right * channels + channel
                    kernels[output, begin::run] = weight[copy, output, channel, :, right]
        by_kernels[:] = 0
        by.bias[copy] = 0
        for number in range(batch):
            for channel in range(channels):
                image[channel : height * width * channels : channels] = x[copy, number, channel].ravel()
            by_image[:] = 0
            for output in range(outputs):
                gradient = above.values[copy, number, output].ravel()
                places = above.places[copy, number, output].ravel()
                kernel, by_kernel = kernels[output], by_kernels[output]
                by.bias[copy, output] += gradient.sum()
                for pixel in range(len(gradient)):
                    if gradient[pixel] != 0:
                        for down in range(high):
                            begin = (places[pixel] + down * width) * channels
                            _add_run(by_kernel, down * run, gradient[pixel], image, begin, run)
                            if below.size:
                                _add_run(by_image, begin, gradient[pixel], kernel, down * run, run)
            if below.size:
                for channel in range(channels):
                    flat = below[copy, number, channel].ravel()
                    flat[:] = by_image[channel : height * width * channels : channels]
        for output in range(outputs):
            for channel in range(channels):
                for right in range(wide):
                    begin = right * channels + channel
                    by.weight[copy, output, channel, :, right] = by_kernels[output, begin::run]
