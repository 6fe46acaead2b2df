"""The loops of a convolution with pooling, compiled.

They work on one image after the other, so that all they touch stays in the nearest cache.

Forwards, there are two ways. A plane (one channel of an image) is shifted as a whole: an output plane is the
sum of all input planes at all shifts, each times one weight. Lines get a few numbers at their ends that mean
nothing, and nobody reads those. Where lines are short, that is much, and if there are many outputs, vectors
of those waste nothing. Backwards, pooling makes it cheap: a pooled pixel comes from one place, so that three
places in four have no gradient, and of the rest an activation may stop half. Each that is left touches a
patch of the image, which is a few runs of memory if channels come last.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from fedsim.training.stacked.vectors import (
    BROAD,
    LONG,
    PAIR,
    PAIRS,
    Floats,
    Indices,
    Places,
    add_weighted,
    choose,
    gather,
    scatter,
    strongest,
)

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
    places: Places
    """Where each comes from: the upper left corner of its patch, counted along a plane of the image."""


@_inlined
def _where(kernel: tuple[int, int, int], strides: tuple[int, int, int]) -> Indices:
    """Where the weights of a kernel (channels, high, wide) are in memory with such strides."""
    channels, high, wide = kernel
    where = np.empty(channels * high * wide, np.intp)
    for tap in range(len(where)):
        line, right = divmod(tap, wide)
        channel, down = divmod(line, high)
        where[tap] = channel * strides[0] + down * strides[1] + right * strides[2]
    return where


@_inlined
def _largest(
    found: Floats, width: int, values: Floats, places: Places, shape: tuple[int, int], at: int
) -> None:
    """The largest of each 2×2 block of an output plane, and where it is; both with 8 numbers to spare."""
    rows, columns = shape
    for row in range(rows):
        # Eight at a time: what is beyond a line's end is written over by the next line.
        for column in range(0, columns, 8):
            choose(found, 2 * (row * width + column), width, values, places, at + row * columns + column)


@_inlined
def _all(found: Floats, width: int, values: Floats, places: Places, shape: tuple[int, int], at: int) -> None:
    """An output plane without the ends of its lines, and where its numbers are."""
    rows, columns = shape
    for row in range(rows):
        for column in range(columns):
            to, place = at + row * columns + column, row * width + column
            values[to], places[to] = found[place], place


@_inlined
def _span(width: int, lines: int) -> int:
    """Numbers in so many lines, as `add_weighted` takes them."""
    return -(-lines * width // LONG) * LONG


@_compiled
def _along_lines(x: Floats, kernels: Kernels, taps: Indices, pool: int, out: Pooled) -> None:
    """`correlate` with whole planes, of which there may be any number."""
    copies, batch, channels, height, width = x.shape
    outputs, wide = kernels.weight.shape[1], kernels.weight.shape[4]
    shape = out.values.shape[3:]
    pixels = shape[0] * shape[1]
    span = _span(width, shape[0] * pool)
    images = x.reshape(copies, batch, channels * height * width)
    image = np.zeros(images.shape[2] + span + wide, np.float32)
    # Pooling looks at two vectors at a time.
    one, two = np.empty(span + 16, np.float32), np.empty(span + 16, np.float32)
    all_values = out.values.reshape(copies, batch, outputs * pixels)
    all_places = out.places.reshape(copies, batch, outputs * pixels)
    values, places = np.empty(outputs * pixels + 8, np.float32), np.empty(outputs * pixels + 8, np.uint32)
    for copy in range(copies):
        weight, bias = kernels.weight[copy].reshape(outputs, len(taps)), kernels.bias[copy]
        for number in range(batch):
            # Number by number: to assign slices takes several times as long.
            for at in range(images.shape[2]):
                image[at] = images[copy, number, at]
            for output in range(0, outputs, 2):
                other = min(output + 1, outputs - 1)
                one[:] = bias[output]
                two[:] = bias[other]
                for at in range(0, span, LONG):
                    add_weighted(one, two, at, image, taps, weight[output], weight[other], len(taps))
                for each in range(output, other + 1):
                    sums = one if each == output else two
                    if pool == 2:
                        _largest(sums, width, values, places, shape, each * pixels)
                    else:
                        _all(sums, width, values, places, shape, each * pixels)
            for at in range(outputs * pixels):
                all_values[copy, number, at], all_places[copy, number, at] = values[at], places[at]


@_compiled
def _across_outputs(x: Floats, kernels: Kernels, taps: Indices, out: Pooled) -> None:
    """`correlate` with BROAD outputs at a time and 2×2 pooling, without numbers that mean nothing."""
    copies, batch, channels, height, width = x.shape
    outputs = kernels.weight.shape[1]
    rows, columns = out.values.shape[3:]
    pixels, groups = rows * columns, -(-outputs // BROAD)
    seen = x.ravel()
    all_values = out.values.reshape(copies, batch, outputs, pixels)
    all_places = out.places.reshape(copies, batch, outputs, pixels)
    weights = np.zeros((groups, len(taps), BROAD), np.float32)
    biases = np.zeros((groups, BROAD), np.float32)
    values, places = np.empty((pixels, BROAD), np.float32), np.empty((pixels, BROAD), np.uint32)
    for copy in range(copies):
        weight = kernels.weight[copy].reshape(outputs, len(taps))
        for output in range(outputs):
            group, lane = divmod(output, BROAD)
            biases[group, lane] = kernels.bias[copy, output]
            for tap in range(len(taps)):
                weights[group, tap, lane] = weight[output, tap]
        for number in range(batch):
            begin = (copy * batch + number) * channels * height * width
            for group in range(groups):
                for pixel in range(pixels):
                    row, column = divmod(pixel, columns)
                    strongest(
                        seen, begin, 2 * (row * width + column), width,
                        taps, weights[group], biases[group], len(taps),
                        values, places, pixel * BROAD,
                    )  # fmt: skip
                for lane in range(min(BROAD, outputs - group * BROAD)):
                    output = group * BROAD + lane
                    for pixel in range(pixels):
                        all_values[copy, number, output, pixel] = values[pixel, lane]
                        all_places[copy, number, output, pixel] = places[pixel, lane]


@_compiled
def correlate(x: Floats, kernels: Kernels, pool: int, out: Pooled) -> None:
    """`out` gets the largest output of each `pool` × `pool` block, `pool` 1 or 2.

    `x` are images (copies, batch, channels, height, width).
    """
    height, width = x.shape[3:]
    _, outputs, channels, high, wide = kernels.weight.shape
    rows, columns = out.values.shape[3:]
    taps = _where((channels, high, wide), (height * width, width, 1))
    # Whichever adds up fewer numbers.
    across = -(-outputs // BROAD) * BROAD * 4 * rows * columns
    if pool == 2 and across < outputs * _span(width, 2 * rows):
        _across_outputs(x, kernels, taps, out)
    else:
        _along_lines(x, kernels, taps, pool, out)


@_inlined
def _channels_last(planes: Floats, image: Floats) -> None:
    """(channels, pixels) to the beginning of `image`, a pixel's channels side by side."""
    channels, pixels = planes.shape
    for channel in range(channels):
        for place in range(pixels):
            image[place * channels + channel] = planes[channel, place]


@_inlined
def _channels_first(image: Floats, planes: Floats) -> None:
    """The way back."""
    channels, pixels = planes.shape
    for channel in range(channels):
        for place in range(pixels):
            planes[channel, place] = image[place * channels + channel]


@_inlined
def _apart(pixels: int, step: int) -> Places:
    """All pixels, in an order that goes on by a step.

    What was just written is not to be had before it has arrived in the cache. Patches of pixels side by side
    overlap, those of one that is a line below and two columns further hardly do.
    """
    order, count = np.empty(pixels, np.uint32), 0
    for first in range(step):
        for pixel in range(first, pixels, step):
            order[count] = pixel
            count += 1
    return order


@_inlined
def _note(
    gradient: Floats, places: Places, order: Places, channels: int, begins: Indices, factors: Floats
) -> int:
    """List the gradients that are not 0, and where their patches begin: how many there are."""
    count = 0
    for pixel in order:
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
    where = _where((channels, high, wide), (1, run, channels))
    kernels = np.zeros((outputs, groups * PAIRS * PAIR), np.float32)
    by_kernels = np.empty_like(kernels)
    planes, by_planes = (
        x.reshape(copies, batch, channels, height * width),
        below.reshape(len(below), batch, channels, height * width),
    )
    weights, by_weights = (
        weight.reshape(copies, outputs, len(where)),
        by.weight.reshape(copies, outputs, len(where)),
    )
    pixels = above.values.shape[3] * above.values.shape[4]
    begins, factors = np.empty(pixels, np.intp), np.empty(pixels, np.float32)
    order = _apart(pixels, above.values.shape[4] + 2)
    for copy in range(copies):
        for output in range(outputs):
            for tap in range(len(where)):
                kernels[output, where[tap]] = weights[copy, output, tap]
        by_kernels[:] = 0
        by.bias[copy] = 0
        for number in range(batch):
            _channels_last(planes[copy, number], image)
            if below.size:
                by_image[:] = 0
            for output in range(outputs):
                gradient = above.values[copy, number, output].ravel()
                places = above.places[copy, number, output].ravel()
                by.bias[copy, output] += gradient.sum()
                count = _note(gradient, places, order, channels, begins, factors)
                for group in range(groups):
                    stretch, at = group * PAIRS, group * PAIRS * PAIR
                    gather(by_kernels[output], at, image, begins, factors, count, shifts, stretch)
                    if below.size:
                        scatter(kernels[output], at, by_image, begins, factors, count, shifts, stretch)
            if below.size:
                _channels_first(by_image, by_planes[copy, number])
        for output in range(outputs):
            for tap in range(len(where)):
                by_weights[copy, output, tap] = by_kernels[output, where[tap]]
