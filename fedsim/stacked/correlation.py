"""The loops of a convolution with pooling, compiled.

They work on one image after the other, so that all they touch stays in the nearest cache.

Forwards, a plane (one channel of an image) is shifted as a whole: an output plane is the sum of all input
planes at all shifts, each times one weight. Lines get a few numbers at their ends that mean nothing, and
nobody reads those. Backwards, pooling makes it cheap: a pooled pixel comes from one place, so that three
places in four have no gradient, and of the rest an activation may stop half. Each that is left touches a
patch of the image, which is a few runs of memory if channels come last.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from fedsim.stacked.vectors import LONG, PAIR, PAIRS, Floats, Indices, add_weighted, choose, gather, scatter

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
def _largest(found: Floats, width: int, columns: int, values: Floats, places: NDArray[np.uint32]) -> None:
    """The largest of each 2×2 block of an output plane, and where it is; both with 8 numbers to spare."""
    for begin in range(0, len(values) - 8, columns):
        # Eight at a time: what is beyond a line's end is written over by the next line.
        for column in range(0, columns, 8):
            corner = 2 * (begin // columns * width + column)
            choose(found, corner, width, values, places, begin + column)


@_inlined
def _all(found: Floats, width: int, columns: int, values: Floats, places: NDArray[np.uint32]) -> None:
    """An output plane without the ends of its lines, and where its numbers are."""
    for at in range(len(values) - 8):
        places[at] = at // columns * width + at % columns
        values[at] = found[places[at]]


@_compiled
def correlate(x: Floats, kernels: Kernels, pool: int, out: Pooled) -> None:
    """`out` gets the largest output of each `pool` × `pool` block, `pool` 1 or 2.

    `x` are images (copies, batch, channels, height, width).
    """
    copies, batch, channels, height, width = x.shape
    _, outputs, _, high, wide = kernels.weight.shape
    rows, columns = out.values.shape[3:]
    taps = np.empty(channels * high * wide, np.intp)
    for tap in range(len(taps)):
        line, right = divmod(tap, wide)
        channel, down = divmod(line, high)
        taps[tap] = (channel * height + down) * width + right
    span = -(-((height - high + 1) * width) // LONG) * LONG
    image = np.zeros(channels * height * width + span + wide, np.float32)
    # Pooling looks at two vectors at a time.
    sums = np.empty((2, span + 16), np.float32)
    values, places = np.empty(rows * columns + 8, np.float32), np.empty(rows * columns + 8, np.uint32)
    for copy in range(copies):
        weight, bias = kernels.weight[copy].reshape(outputs, len(taps)), kernels.bias[copy]
        for number in range(batch):
            image[: channels * height * width] = x[copy, number].ravel()
            for output in range(0, outputs, 2):
                other = min(output + 1, outputs - 1)
                sums[0], sums[1] = bias[output], bias[other]
                for at in range(0, span, LONG):
                    add_weighted(sums[0], sums[1], at, image, taps, weight[output], weight[other], len(taps))
                for each in range(output, other + 1):
                    if pool == 2:
                        _largest(sums[each - output], width, columns, values, places)
                    else:
                        _all(sums[each - output], width, columns, values, places)
                    out.values[copy, number, each].ravel()[:] = values[:-8]
                    out.places[copy, number, each].ravel()[:] = places[:-8]


@_inlined
def _channels_last(planes: Floats, image: Floats) -> None:
    """(channels, height, width) to the beginning of `image`, a pixel's channels side by side."""
    for channel in range(len(planes)):
        plane = planes[channel].ravel()
        for place in range(len(plane)):
            image[place * len(planes) + channel] = plane[place]


@_inlined
def _channels_first(image: Floats, planes: Floats) -> None:
    """The way back."""
    for channel in range(len(planes)):
        plane = planes[channel].ravel()
        for place in range(len(plane)):
            plane[place] = image[place * len(planes) + channel]


@_inlined
def _note(
    gradient: Floats, places: NDArray[np.uint32], channels: int, begins: Indices, factors: Floats
) -> int:
    """List the gradients that are not 0, and where their patches begin: how many there are."""
    count = 0
    for pixel in range(len(gradient)):
        # Without a branch, which nobody could foresee: what is not wanted is written over.
        begins[count], factors[count] = np.intp(places[pixel]) * channels, gradient[pixel]
        count += gradient[pixel] != 0
    return count


@_compiled
def pull_back(above: Pooled, x: Floats, weight: Floats, by: Kernels, below: Floats) -> None:
    """From the gradient in what `correlate` put out to those in the kernels, `by`, and in `x`, `below`.

    An empty `below` is left alone.
    """
    copies, batch, channels, height, width = x.shape
    _, outputs, _, high, wide = weight.shape
    # A patch is as many runs as the kernel is high, and a run is whole stretches of PAIR numbers, of which
    # PAIRS are treated at a time. Beyond the patch a kernel is 0, and its gradient is not read.
    run = -(-wide * channels // PAIR) * PAIR
    groups = -(-high * run // (PAIRS * PAIR))
    shifts = np.zeros(groups * PAIRS, np.intp)
    for stretch in range(high * run // PAIR):
        down, part = divmod(stretch * PAIR, run)
        shifts[stretch] = down * width * channels + part
    image = np.zeros(height * width * channels + run, np.float32)
    by_image = np.zeros_like(image)
    kernels = np.zeros((outputs, groups * PAIRS * PAIR), np.float32)
    by_kernels = np.empty_like(kernels)
    pixels = above.values.shape[3] * above.values.shape[4]
    begins, factors = np.empty(pixels, np.intp), np.empty(pixels, np.float32)
    for copy in range(copies):
        for output in range(outputs):
            for channel in range(channels):
                for down in range(high):
                    for right in range(wide):
                        at = down * run + right * channels + channel
                        kernels[output, at] = weight[copy, output, channel, down, right]
        by_kernels[:] = 0
        by.bias[copy] = 0
        for number in range(batch):
            _channels_last(x[copy, number], image)
            by_image[:] = 0
            for output in range(outputs):
                gradient = above.values[copy, number, output].ravel()
                places = above.places[copy, number, output].ravel()
                by.bias[copy, output] += gradient.sum()
                count = _note(gradient, places, channels, begins, factors)
                for group in range(groups):
                    stretch, at = group * PAIRS, group * PAIRS * PAIR
                    gather(by_kernels[output], at, image, begins, factors, count, shifts, stretch)
                    if below.size:
                        scatter(kernels[output], at, by_image, begins, factors, count, shifts, stretch)
            if below.size:
                _channels_first(by_image, below[copy, number])
        for output in range(outputs):
            for channel in range(channels):
                for down in range(high):
                    for right in range(wide):
                        at = down * run + right * channels + channel
                        by.weight[copy, output, channel, down, right] = by_kernels[output, at]
