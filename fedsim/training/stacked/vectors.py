"""Loops over vectors of eight numbers, written as LLVM instructions.

Compiled from plain Python, such loops would write most sums back to memory after every product, because the
compiler has to assume that arrays overlap. Here sums stay in the 16 vector registers; that number limits how
much is done at a time. Nothing is checked: callers make arrays long enough. All arrays are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import void
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
Places = NDArray[np.uint32]

SPAN_FLOATS = 48
"""Numbers that `add_weighted` adds up at a time, for each of two sums: 12 registers."""

OUTPUT_LANES = 16
"""Sums side by side that `strongest` adds up at a time, at each of four positions: 8 registers."""

STRETCHES, STRETCH_FLOATS = 5, 16
"""`gather` and `scatter` treat STRETCHES stretches of STRETCH_FLOATS numbers at a time: 10 registers."""

LINE_FLOATS = 32
"""Numbers that `add_squares` and `add_passed` add up at a time, for each of two sums: 8 registers."""

_INDEX, _INTEGER = ir.IntType(64), ir.IntType(32)
_FLOAT_VECTOR, _INT_VECTOR = ir.VectorType(ir.FloatType(), 8), ir.VectorType(_INTEGER, 8)
_EVEN_LANES = ir.Constant(_INT_VECTOR, list(range(0, 16, 2)))
_ODD_LANES = ir.Constant(_INT_VECTOR, list(range(1, 16, 2)))


class _Writer:
    """Writes the instructions of one loop; `data` are the arguments, with pointers in place of arrays."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any) -> None:
        self.builder = builder
        self.data = [
            context.make_array(kind)(context, builder, value).data if hasattr(kind, "ndim") else value
            for kind, value in zip(signature.args, values, strict=True)
        ]

    def place(self, data: Any, index: Any, shift: int = 0) -> Any:
        """The address of `data[index + shift]`."""
        moved = self.builder.gep(data, [index])
        return self.builder.gep(moved, [_INDEX(shift)]) if shift else moved

    def number(self, data: Any, index: Any, shift: int = 0) -> Any:
        """`data[index + shift]`."""
        return self.builder.load(self.place(data, index, shift))

    def eight(self, data: Any, index: Any, shift: int = 0) -> Any:
        """Eight numbers from `data[index + shift]` on."""
        place = self.place(data, index, shift)
        return self.builder.load(self.builder.bitcast(place, _FLOAT_VECTOR.as_pointer()), align=4)

    def put(self, eight: Any, data: Any, index: Any, shift: int = 0) -> None:
        """Write eight numbers."""
        place = self.place(data, index, shift)
        self.builder.store(eight, self.builder.bitcast(place, eight.type.as_pointer()), align=4)

    def eight_times(self, number: Any, vectors: Any = _FLOAT_VECTOR) -> Any:
        """A vector with the same number in all lanes."""
        nothing = ir.Constant(vectors, ir.Undefined)
        first = self.builder.insert_element(nothing, number, _INTEGER(0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(_INT_VECTOR, [0] * 8))

    def plus_product(self, total: Any, left: Any, right: Any) -> Any:
        """`total + left * right`, rounded once."""
        product = self.builder.fmul(left, right, flags=("contract",))
        return self.builder.fadd(total, product, flags=("contract",))

    def sums(self, data: Any, index: Any, length: int) -> list[Any]:
        """Sums that begin with `data[index : index + length]`; compiled, they are registers."""
        sums = []
        for shift in range(0, length, 8):
            total = cgutils.alloca_once(self.builder, _FLOAT_VECTOR)  # type: ignore[no-untyped-call]
            self.builder.store(self.eight(data, index, shift), total)
            sums.append(total)
        return sums

    def add(self, total: Any, left: Any, right: Any) -> None:
        """Add a product to a sum."""
        self.builder.store(self.plus_product(self.builder.load(total), left, right), total)

    def largest(self, rivals: Iterable[tuple[Any, Any]]) -> tuple[Any, Any]:
        """From pairs (vector, positions): the largest number in each lane, and its position.

        Of equal numbers the first one counts.
        """
        (best, place), *others = rivals
        for rival, rival_place in others:
            larger = self.builder.fcmp_ordered(">", rival, best)
            best = self.builder.select(larger, rival, best)
            place = self.builder.select(larger, rival_place, place)
        return best, place

    @contextmanager
    def patches(
        self, of: Any, begins: Any, factors: Any, count: Any, shifts: Any, first: Any
    ) -> Iterator[tuple[Any, list[tuple[Any, Any, int]]]]:
        """A loop over `count` patches: the factor of each, and the (data, index, shift) of its vectors."""
        ways = [self.number(shifts, first, pair) for pair in range(STRETCHES)]
        with cgutils.for_range(self.builder, count) as loop:
            patch = self.place(of, self.number(begins, loop.index))
            factor = self.eight_times(self.number(factors, loop.index))
            yield factor, [(patch, way, part) for way in ways for part in range(0, STRETCH_FLOATS, 8)]

    def put_sums(self, sums: Sequence[Any], data: Any, index: Any) -> None:
        """Write sums back to their array."""
        for number, total in enumerate(sums):
            self.put(self.builder.load(total), data, index, 8 * number)


def _compiled_as(write_down: Callable[..., None]) -> Any:
    """A numba intrinsic of the instructions that `write_down` writes; compiled loops call it."""

    # With the signature of `write_down`, from which numba takes the number of arguments.
    @wraps(write_down)
    def loop(typing: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            write = _Writer(context, builder, signature, values)
            write_down(write, *write.data)
            return context.get_dummy_value()

        return void(*arguments), generate

    return intrinsic(loop)


@_compiled_as
def _add_weighted(
    write: _Writer, first: Any, second: Any, at: Any, seen: Any, taps: Any, one: Any, two: Any, count: Any
) -> None:
    """Two weighted sums of `count` shifted stretches of `seen`, for one reading of it.

    With s = SPAN_FLOATS, `first[at : at + s]` gets `one[t] * seen[at + taps[t] : at + taps[t] + s]` added to
    it for all t, and `second` gets the same with `two`.
    """
    sums = write.sums(first, at, SPAN_FLOATS), write.sums(second, at, SPAN_FLOATS)
    stretch = write.place(seen, at)
    with cgutils.for_range(write.builder, count) as loop:
        tap = write.number(taps, loop.index)
        weights = [write.eight_times(write.number(weight, loop.index)) for weight in (one, two)]
        for number, totals in enumerate(zip(*sums, strict=True)):
            eight = write.eight(stretch, tap, 8 * number)
            for total, weight in zip(totals, weights, strict=True):
                write.add(total, weight, eight)
    write.put_sums(sums[0], first, at)
    write.put_sums(sums[1], second, at)


@_compiled_as
def _gather(
    write: _Writer,
    to: Any,
    at: Any,
    seen: Any,
    begins: Any,
    factors: Any,
    count: Any,
    shifts: Any,
    first: Any,
) -> None:
    """Weighted sums of `count` patches of `seen`, of each the STRETCHES stretches from the `first` on.

    With p = STRETCH_FLOATS, `to[at + i * p : at + (i + 1) * p]` gets `factors[k] * seen[b : b + p]` added
    to it for all k, where b = `begins[k] + shifts[first + i]`.
    """
    sums = write.sums(to, at, STRETCHES * STRETCH_FLOATS)
    with write.patches(seen, begins, factors, count, shifts, first) as (factor, places):
        for total, place in zip(sums, places, strict=True):
            write.add(total, factor, write.eight(*place))
    write.put_sums(sums, to, at)


@_compiled_as
def _scatter(
    write: _Writer, of: Any, at: Any, to: Any, begins: Any, factors: Any, count: Any, shifts: Any, first: Any
) -> None:
    """The transpose of `gather`: add multiples of `of` to `count` patches.

    `to[b : b + p]` gets `factors[k] * of[at + i * p : at + (i + 1) * p]` added to it, b and p as there.
    """
    eights = [write.eight(of, at, shift) for shift in range(0, STRETCHES * STRETCH_FLOATS, 8)]
    with write.patches(to, begins, factors, count, shifts, first) as (factor, places):
        for eight, place in zip(eights, places, strict=True):
            write.put(write.plus_product(write.eight(*place), factor, eight), *place)


@_compiled_as
def _choose(write: _Writer, found: Any, corner: Any, width: Any, values: Any, places: Any, at: Any) -> None:
    """The largest number in each of eight 2×2 blocks side by side, and its position.

    The first block's upper left corner is `found[corner]`, and lines are `width` long. Results go to
    `values[at : at + 8]` and `places[at : at + 8]`.
    """
    builder, rivals = write.builder, []
    for line in (corner, builder.add(corner, width)):
        left, right = write.eight(found, line), write.eight(found, line, 8)
        begin = write.eight_times(builder.trunc(line, _INTEGER), _INT_VECTOR)
        rivals += [
            (builder.shuffle_vector(left, right, columns), builder.add(begin, columns))
            for columns in (_EVEN_LANES, _ODD_LANES)
        ]
    best, place = write.largest(rivals)
    write.put(best, values, at)
    write.put(place, places, at)


@_compiled_as
def _strongest(
    write: _Writer,
    seen: Any,
    begin: Any,
    corner: Any,
    width: Any,
    taps: Any,
    weights: Any,
    bias: Any,
    count: Any,
    values: Any,
    places: Any,
    at: Any,
) -> None:
    """The largest of the weighted sums at the four positions of a 2×2 block, and its position.

    It works on n = OUTPUT_LANES outputs side by side. At position p their sums are `bias[:n]` plus
    `seen[begin + p + taps[t]] * weights[t]` for all `count` t, where `weights[t]` is a line of n. The block's
    upper left corner is `corner`, and lines are `width` long. Results go to `values[at : at + n]` and
    `places[at : at + n]`.
    """
    builder = write.builder
    sample, lower = write.place(seen, begin), builder.add(corner, width)
    block = [(line, right) for line in (corner, lower) for right in (0, 1)]
    sums = [write.sums(bias, _INDEX(0), OUTPUT_LANES) for _ in block]
    lines = [write.place(sample, line, right) for line, right in block]
    with cgutils.for_range(builder, count) as loop:
        tap = write.number(taps, loop.index)
        first = builder.mul(loop.index, _INDEX(OUTPUT_LANES))
        eights = [write.eight(weights, first, shift) for shift in range(0, OUTPUT_LANES, 8)]
        for line, totals in zip(lines, sums, strict=True):
            factor = write.eight_times(write.number(line, tap))
            for total, eight in zip(totals, eights, strict=True):
                write.add(total, factor, eight)
    block_places = [
        write.eight_times(builder.trunc(builder.add(line, _INDEX(right)), _INTEGER), _INT_VECTOR)
        for line, right in block
    ]
    for number, lanes in enumerate(zip(*sums, strict=True)):
        rivals = [builder.load(total) for total in lanes]
        best, place = write.largest(zip(rivals, block_places, strict=True))
        write.put(best, values, at, 8 * number)
        write.put(place, places, at, 8 * number)


@_compiled_as
def _add_squares(
    write: _Writer, seen: Any, at: Any, pitch: Any, count: Any, sums: Any, squares: Any, lane: Any
) -> None:
    """Sums of `count` lines of LINE_FLOATS numbers, `pitch` apart, and of their squares.

    With s = LINE_FLOATS, `sums[lane : lane + s]` gets `seen[b : b + s]` added to it for b = `at`,
    `at + pitch`, and so on, and `squares` gets the squares.
    """
    builder = write.builder
    plain, squared = write.sums(sums, lane, LINE_FLOATS), write.sums(squares, lane, LINE_FLOATS)
    with cgutils.for_range(builder, count) as loop:
        line = builder.add(at, builder.mul(loop.index, pitch))
        for number, (total, square) in enumerate(zip(plain, squared, strict=True)):
            eight = write.eight(seen, line, 8 * number)
            builder.store(builder.fadd(builder.load(total), eight), total)
            write.add(square, eight, eight)
    write.put_sums(plain, sums, lane)
    write.put_sums(squared, squares, lane)


@_compiled_as
def _add_passed(
    write: _Writer,
    gradient: Any,
    outputs: Any,
    above: Any,
    inputs: Any,
    to: Any,
    at: Any,
    pitch: Any,
    count: Any,
    sums: Any,
    products: Any,
    lane: Any,
) -> None:
    """The gradient where outputs are `above` a number, and 0 elsewhere: written `to`, and summed.

    Lines are those of `add_squares`. `sums` get what is written, `products` that times the inputs.
    """
    builder = write.builder
    plain, weighted = write.sums(sums, lane, LINE_FLOATS), write.sums(products, lane, LINE_FLOATS)
    bound, nothing = write.eight_times(above), ir.Constant(_FLOAT_VECTOR, [0.0] * 8)
    with cgutils.for_range(builder, count) as loop:
        line = builder.add(at, builder.mul(loop.index, pitch))
        for number, (total, product) in enumerate(zip(plain, weighted, strict=True)):
            is_open = builder.fcmp_ordered(">", write.eight(outputs, line, 8 * number), bound)
            passed = builder.select(is_open, write.eight(gradient, line, 8 * number), nothing)
            write.put(passed, to, line, 8 * number)
            builder.store(builder.fadd(builder.load(total), passed), total)
            write.add(product, passed, write.eight(inputs, line, 8 * number))
    write.put_sums(plain, sums, lane)
    write.put_sums(weighted, products, lane)


# The types of the intrinsics as compiled loops call them.
_Patches = Callable[[Floats, int, Floats, Indices, Floats, int, Indices, int], None]
add_weighted = cast(
    "Callable[[Floats, Floats, int, Floats, Indices, Floats, Floats, int], None]", _add_weighted
)
gather = cast("_Patches", _gather)
scatter = cast("_Patches", _scatter)
choose = cast("Callable[[Floats, int, int, Floats, Places, int], None]", _choose)
strongest = cast(
    "Callable[[Floats, int, int, int, Indices, Floats, Floats, int, Floats, Places, int], None]", _strongest
)
add_squares = cast("Callable[[Floats, int, int, int, Floats, Floats, int], None]", _add_squares)
add_passed = cast(
    "Callable[[Floats, Floats, np.float32, Floats, Floats, int, int, int, Floats, Floats, int], None]",
    _add_passed,
)
