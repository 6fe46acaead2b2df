"""The compiled loops of a convolution with pooling.

They work on one sample of the batch after the other, so that all the memory they touch stays in the nearest
cache.

The forward pass has two ways. `_along_lines` shifts a plane (one channel of a sample) as a whole: an output
plane is the sum of all input planes at all shifts, each times one weight. Each line then ends in a few
meaningless numbers, which nobody reads. On short lines they are a large part, so with many outputs
`_across_outputs` computes vectors of outputs instead, without such waste. The backward pass is cheap because
of pooling: a pooled value comes from one position, so that three positions in four have no gradient, and a
ReLU stops half of the rest. Each gradient that is left touches a patch of the input, which is a few
contiguous runs if channels come last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsim.core.compilation import compiled
from fedsim.training.stacked import vectors
from fedsim.training.stacked.vectors import (
    LANES,
    OUTPUT_LANES,
    SPAN_FLOATS,
    STRETCH_FLOATS,
    Floats,
    Indices,
    Places,
    add_weighted,
    choose,
    gather,
    scatter,
    strongest,
)

# Sums may be taken in any order. NaN stays NaN, so that a training that diverges shows.
_LIBERTIES = {"contract", "reassoc"}
_compiled = compiled(vectors, fastmath=_LIBERTIES, error_model="numpy", nogil=True)
# Inlined into another loop: a call would count references to every array that it passes.
_inlined = compiled(vectors, inline="always", fastmath=_LIBERTIES, error_model="numpy", nogil=True)


class Kernels(NamedTuple):
    """A convolution's parameters, or the gradients in them."""

    weight: Floats
    """(copies, outputs, channels, high, wide)"""
    bias: Floats
    """(copies, outputs)"""


class Pooled(NamedTuple):
    """The outputs of a convolution after pooling, or the gradient in them."""

    values: Floats
    """(copies, batch, outputs, rows, columns)"""
    places: Places
    """The position that each value comes from: the upper left corner of its patch in an input plane."""


@_inlined
def _where(kernel: tuple[int, int, int], strides: tuple[int, int, int]) -> Indices:
    """The offsets of the weights of a kernel (channels, high, wide) in memory with these strides."""
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
    """The maximum of each 2×2 block of an output plane, and its position; both have LANES to spare."""
    rows, columns = shape
    for row in range(rows):
        # A vector at a time: the next line overwrites the numbers beyond the end of this line.
        for column in range(0, columns, LANES):
            choose(found, 2 * (row * width + column), width, values, places, at + row * columns + column)


@_inlined
def _all(found: Floats, width: int, values: Floats, places: Places, shape: tuple[int, int], at: int) -> None:
    """An output plane without the ends of its lines, and the positions of its numbers."""
    rows, columns = shape
    for row in range(rows):
        for column in range(columns):
            to, place = at + row * columns + column, row * width + column
            values[to], places[to] = found[place], place


@_inlined
def _span(width: int, lines: int) -> int:
    """Numbers in `lines` lines, rounded up to the multiple that `add_weighted` takes."""
    return -(-lines * width // SPAN_FLOATS) * SPAN_FLOATS


@_compiled
def _along_lines(x: Floats, kernels: Kernels, taps: Indices, pool: int, out: Pooled) -> None:
    """`correlate` by whole planes, for any number of outputs."""
    copies, batch, channels, height, width = x.shape
    outputs, wide = kernels.weight.shape[1], kernels.weight.shape[4]
    shape = out.values.shape[3:]
    positions = shape[0] * shape[1]
    span = _span(width, shape[0] * pool)
    samples = x.reshape(copies, batch, channels * height * width)
    sample = np.zeros(samples.shape[2] + span + wide, np.float32)
    # Pooling looks at two vectors at a time.
    one, two = np.empty(span + 2 * LANES, np.float32), np.empty(span + 2 * LANES, np.float32)
    all_values = out.values.reshape(copies, batch, outputs * positions)
    all_places = out.places.reshape(copies, batch, outputs * positions)
    values, places = (
        np.empty(outputs * positions + LANES, np.float32),
        np.empty(outputs * positions + LANES, np.uint32),
    )
    for copy in range(copies):
        weight, bias = kernels.weight[copy].reshape(outputs, len(taps)), kernels.bias[copy]
        for number in range(batch):
            # Number by number: assigning slices takes several times as long.
            for at in range(samples.shape[2]):
                sample[at] = samples[copy, number, at]
            for output in range(0, outputs, 2):
                other = min(output + 1, outputs - 1)
                one[:] = bias[output]
                two[:] = bias[other]
                spans = span // SPAN_FLOATS
                add_weighted(one, two, spans, sample, taps, weight[output], weight[other], len(taps))
                for each in range(output, other + 1):
                    sums = one if each == output else two
                    if pool == 2:
                        _largest(sums, width, values, places, shape, each * positions)
                    else:
                        _all(sums, width, values, places, shape, each * positions)
            for at in range(outputs * positions):
                all_values[copy, number, at], all_places[copy, number, at] = values[at], places[at]


@_compiled
def _across_outputs(x: Floats, kernels: Kernels, taps: Indices, out: Pooled) -> None:
    """`correlate` with OUTPUT_LANES outputs at a time and 2×2 pooling, without meaningless numbers."""
    copies, batch, channels, height, width = x.shape
    outputs = kernels.weight.shape[1]
    rows, columns = out.values.shape[3:]
    positions, groups = rows * columns, -(-outputs // OUTPUT_LANES)
    seen = x.ravel()
    all_values = out.values.reshape(copies, batch, outputs, positions)
    all_places = out.places.reshape(copies, batch, outputs, positions)
    weights = np.zeros((groups, len(taps), OUTPUT_LANES), np.float32)
    biases = np.zeros((groups, OUTPUT_LANES), np.float32)
    values, places = (
        np.empty((positions, OUTPUT_LANES), np.float32),
        np.empty((positions, OUTPUT_LANES), np.uint32),
    )
    corners = np.empty(positions, np.uint32)
    for position in range(positions):
        row, column = divmod(position, columns)
        corners[position] = 2 * (row * width + column)
    for copy in range(copies):
        weight = kernels.weight[copy].reshape(outputs, len(taps))
        for output in range(outputs):
            group, lane = divmod(output, OUTPUT_LANES)
            biases[group, lane] = kernels.bias[copy, output]
            for tap in range(len(taps)):
                weights[group, tap, lane] = weight[output, tap]
        for number in range(batch):
            begin = (copy * batch + number) * channels * height * width
            for group in range(groups):
                strongest(
                    seen, begin, corners, positions, width,
                    taps, weights[group], biases[group], len(taps), values, places,
                )  # fmt: skip
                for lane in range(min(OUTPUT_LANES, outputs - group * OUTPUT_LANES)):
                    output = group * OUTPUT_LANES + lane
                    for position in range(positions):
                        all_values[copy, number, output, position] = values[position, lane]
                        all_places[copy, number, output, position] = places[position, lane]


@_compiled
def correlate(x: Floats, kernels: Kernels, pool: int, out: Pooled) -> None:
    """`out` gets the largest output of each `pool` × `pool` block, `pool` 1 or 2.

    `x` is (copies, batch, channels, height, width).
    """
    height, width = x.shape[3:]
    _, outputs, channels, high, wide = kernels.weight.shape
    rows, columns = out.values.shape[3:]
    taps = _where((channels, high, wide), (height * width, width, 1))
    # Choose the way that adds up fewer numbers.
    across = -(-outputs // OUTPUT_LANES) * OUTPUT_LANES * 4 * rows * columns
    if pool == 2 and across < outputs * _span(width, 2 * rows):
        _across_outputs(x, kernels, taps, out)
    else:
        _along_lines(x, kernels, taps, pool, out)


@_inlined
def _channels_last(planes: Floats, sample: Floats) -> None:
    """Copy (channels, positions) to the beginning of `sample`, the channels of a position side by side."""
    channels, positions = planes.shape
    for channel in range(channels):
        for place in range(positions):
            sample[place * channels + channel] = planes[channel, place]


@_inlined
def _channels_first(sample: Floats, planes: Floats) -> None:
    """Copy back, the channels of a sample one after the other."""
    channels, positions = planes.shape
    for channel in range(channels):
        for place in range(positions):
            planes[channel, place] = sample[place * channels + channel]


@_inlined
def _apart(positions: int, step: int) -> Places:
    """All positions, in strides of `step`.

    Memory that was just written cannot be read before it has reached the cache. Patches of neighbouring
    positions overlap; those of positions a line below and two columns further hardly do.
    """
    order, count = np.empty(positions, np.uint32), 0
    for first in range(step):
        for position in range(first, positions, step):
            order[count] = position
            count += 1
    return order


@_inlined
def _note(
    gradient: Floats, places: Places, order: Places, channels: int, begins: Indices, factors: Floats
) -> int:
    """List the gradients that are not 0, and the begin of their patches; return their number."""
    count = 0
    for position in order:
        # Without a branch, which the processor could not predict: the next entry overwrites an unwanted one.
        begins[count], factors[count] = np.intp(places[position]) * channels, gradient[position]
        count += gradient[position] != 0
    return count


@_compiled
def correlate_backward(above: Pooled, x: Floats, weight: Floats, by: Kernels, below: Floats) -> None:
    """From the gradient in the outputs of `correlate` to those in the kernels, `by`, and in `x`, `below`.

    An empty `below` is not computed.
    """
    copies, batch, channels, height, width = x.shape
    _, outputs, _, high, wide = weight.shape
    # A patch has one run of memory per line of the kernel, of whole stretches. Beyond the patch a kernel is
    # 0, and its gradient is not read.
    run = -(-wide * channels // STRETCH_FLOATS) * STRETCH_FLOATS
    stretches = high * run // STRETCH_FLOATS
    shifts = np.empty(stretches, np.intp)
    for stretch in range(stretches):
        down, part = divmod(stretch * STRETCH_FLOATS, run)
        shifts[stretch] = down * width * channels + part
    sample = np.zeros(height * width * channels + run, np.float32)
    by_sample = np.zeros_like(sample)
    where = _where((channels, high, wide), (1, run, channels))
    kernels = np.zeros((outputs, stretches * STRETCH_FLOATS), np.float32)
    by_kernels = np.empty_like(kernels)
    planes, by_planes = (
        x.reshape(copies, batch, channels, height * width),
        below.reshape(len(below), batch, channels, height * width),
    )
    weights, by_weights = (
        weight.reshape(copies, outputs, len(where)),
        by.weight.reshape(copies, outputs, len(where)),
    )
    positions = above.values.shape[3] * above.values.shape[4]
    begins, factors = np.empty(positions, np.intp), np.empty(positions, np.float32)
    order = _apart(positions, above.values.shape[4] + 2)
    for copy in range(copies):
        for output in range(outputs):
            for tap in range(len(where)):
                kernels[output, where[tap]] = weights[copy, output, tap]
        by_kernels[:] = 0
        by.bias[copy] = 0
        for number in range(batch):
            _channels_last(planes[copy, number], sample)
            if below.size:
                by_sample[:] = 0
            for output in range(outputs):
                gradient = above.values[copy, number, output].ravel()
                places = above.places[copy, number, output].ravel()
                by.bias[copy, output] += gradient.sum()
                count = _note(gradient, places, order, channels, begins, factors)
                gather(by_kernels[output], stretches, sample, begins, factors, count, shifts)
                if below.size:
                    scatter(kernels[output], stretches, by_sample, begins, factors, count, shifts)
            if below.size:
                _channels_first(by_sample, by_planes[copy, number])
        for output in range(outputs):
            for tap in range(len(where)):
                by_weights[copy, output, tap] = by_kernels[output, where[tap]]
