"""Loops over vectors of sixteen numbers, written as LLVM instructions.

Compiled from plain Python, such loops would write most sums back to memory after every product, because the
compiler has to assume that arrays overlap. Here sums stay in registers. A processor with AVX-512 has 32 of
sixteen numbers; others have 16 of eight, and LLVM takes two of these for a vector. So much is done at a time
that the sums fit. Every number has a sum of its own, added up in the same order everywhere: results do not
depend on the processor. Nothing is checked: callers make arrays long enough. All arrays are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

import numpy as np
from llvmlite import binding, ir
from numba import void
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
Places = NDArray[np.uint32]

LANES = 16
"""Numbers in a vector, and blocks that `choose` looks at."""

SPAN_FLOATS = 48
"""Numbers of which a whole multiple goes to `add_weighted`: 6 vectors, for two sums."""

OUTPUT_LANES = 16
"""Sums side by side that `strongest` adds up, at each of four positions: 4 vectors for a block."""

STRETCH_FLOATS = 16
"""Numbers in a stretch: a vector."""

LINE_FLOATS = 32
"""Numbers that `add_squares` and `add_passed` add up at a time, for each of two sums: 4 vectors."""

_MANY_REGISTERS = bool(binding.get_host_cpu_features().get("avx512f"))
"""Whether more sums fit. A processor that waits for the last product of a few of them would be idle."""
_AT_A_TIME = (2, 1) if _MANY_REGISTERS else (1,)
"""Spans or blocks that are treated at a time, as many as there are, and then those that are left."""
_GATHERED = (10, 9, 5, 3, 1) if _MANY_REGISTERS else (5, 3, 1)
"""The same of stretches that are gathered."""
_SCATTERED = (9, 5, 4, 3, 2, 1)
"""The same of stretches that are scattered, on all processors: a number gets products of several stretches,
and their order counts."""
_LARGEST_LEFT = 5
"""Above this size, a part is taken only if nothing is left: five and five are quicker than nine and one."""

_INDEX, _INTEGER = ir.IntType(64), ir.IntType(32)
_FLOAT_VECTOR, _INT_VECTOR = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_INTEGER, LANES)
_HALF_VECTOR = ir.VectorType(ir.FloatType(), LANES // 2)
_EVEN_LANES = ir.Constant(_INT_VECTOR, list(range(0, 2 * LANES, 2)))
_ODD_LANES = ir.Constant(_INT_VECTOR, list(range(1, 2 * LANES, 2)))


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

    def vector(self, data: Any, index: Any, shift: int = 0, kind: Any = _FLOAT_VECTOR) -> Any:
        """The numbers from `data[index + shift]` on, LANES of them unless it is another kind of vector."""
        place = self.place(data, index, shift)
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()), align=4)

    def put(self, vector: Any, data: Any, index: Any, shift: int = 0) -> None:
        """Write all numbers of a vector."""
        place = self.place(data, index, shift)
        self.builder.store(vector, self.builder.bitcast(place, vector.type.as_pointer()), align=4)

    def repeated(self, number: Any, kind: Any = _FLOAT_VECTOR) -> Any:
        """A vector with the same number in all lanes."""
        nothing, lanes = ir.Constant(kind, ir.Undefined), ir.VectorType(_INTEGER, kind.count)
        first = self.builder.insert_element(nothing, number, _INTEGER(0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(lanes, [0] * kind.count))

    def plus_product(self, total: Any, left: Any, right: Any) -> Any:
        """`total + left * right`, rounded once."""
        product = self.builder.fmul(left, right, flags=("contract",))
        return self.builder.fadd(total, product, flags=("contract",))

    def sums(self, data: Any, index: Any, length: int) -> list[Any]:
        """Sums that begin with `data[index : index + length]`; compiled, they are registers."""
        sums = []
        for shift in range(0, length, LANES):
            total = cgutils.alloca_once(self.builder, _FLOAT_VECTOR)  # type: ignore[no-untyped-call]
            self.builder.store(self.vector(data, index, shift), total)
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

    def parts(self, count: Any, sizes: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Loops over `count` things, some at a time: (how many, the first), for what is to be done with them.

        A size that divides their number treats them all, and otherwise the smaller ones take their turns.
        """
        begin = _INDEX(0)
        for number in sizes:
            left = self.builder.urem(self.builder.sub(count, begin), _INDEX(number))
            end = self.builder.sub(count, left)
            if number > _LARGEST_LEFT:
                fits = self.builder.icmp_unsigned("==", left, _INDEX(0))
                end = self.builder.select(fits, end, begin)
            with cgutils.for_range_slice(self.builder, begin, end, _INDEX(number), _INDEX) as (first, _):
                yield number, first
            begin = end

    @contextmanager
    def patches(
        self, of: Any, begins: Any, factors: Any, count: Any, ways: Sequence[Any], kind: Any = _FLOAT_VECTOR
    ) -> Iterator[tuple[Any, list[tuple[Any, Any, int]]]]:
        """A loop over `count` patches: the factor of each, and the (data, index, shift) of its vectors."""
        with cgutils.for_range(self.builder, count) as loop:
            patch = self.place(of, self.number(begins, loop.index))
            factor = self.repeated(self.number(factors, loop.index), kind)
            parts = range(0, STRETCH_FLOATS, kind.count)
            yield factor, [(patch, way, part) for way in ways for part in parts]

    def put_sums(self, sums: Sequence[Any], data: Any, index: Any) -> None:
        """Write sums back to their array."""
        for number, total in enumerate(sums):
            self.put(self.builder.load(total), data, index, LANES * number)


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
    write: _Writer,
    first: Any,
    second: Any,
    spans: Any,
    seen: Any,
    taps: Any,
    one: Any,
    two: Any,
    count: Any,
) -> None:
    """Two weighted sums of `count` shifted stretches of `seen`, for one reading of it.

    With n = `spans` * SPAN_FLOATS, `first[:n]` gets `one[t] * seen[taps[t] : taps[t] + n]` added to it for
    all t, and `second` gets the same with `two`.
    """
    for number, span in write.parts(spans, _AT_A_TIME):
        at, length = write.builder.mul(span, _INDEX(SPAN_FLOATS)), number * SPAN_FLOATS
        sums = write.sums(first, at, length), write.sums(second, at, length)
        stretch = write.place(seen, at)
        with cgutils.for_range(write.builder, count) as loop:
            tap = write.number(taps, loop.index)
            weights = [write.repeated(write.number(weight, loop.index)) for weight in (one, two)]
            for shift, totals in enumerate(zip(*sums, strict=True)):
                vector = write.vector(stretch, tap, LANES * shift)
                for total, weight in zip(totals, weights, strict=True):
                    write.add(total, weight, vector)
        write.put_sums(sums[0], first, at)
        write.put_sums(sums[1], second, at)


@_compiled_as
def _gather(
    write: _Writer, to: Any, stretches: Any, seen: Any, begins: Any, factors: Any, count: Any, shifts: Any
) -> None:
    """Weighted sums of `count` patches of `seen`, each of which has as many `stretches`.

    With p = STRETCH_FLOATS, `to[i * p : (i + 1) * p]` gets `factors[k] * seen[b : b + p]` added to it for all
    k, where b = `begins[k] + shifts[i]`.
    """
    for number, stretch in write.parts(stretches, _GATHERED):
        at = write.builder.mul(stretch, _INDEX(STRETCH_FLOATS))
        sums = write.sums(to, at, number * STRETCH_FLOATS)
        ways = [write.number(shifts, stretch, each) for each in range(number)]
        with write.patches(seen, begins, factors, count, ways) as (factor, places):
            for total, place in zip(sums, places, strict=True):
                write.add(total, factor, write.vector(*place))
        write.put_sums(sums, to, at)


@_compiled_as
def _scatter(
    write: _Writer, of: Any, stretches: Any, to: Any, begins: Any, factors: Any, count: Any, shifts: Any
) -> None:
    """The transpose of `gather`: add multiples of `of` to `count` patches.

    `to[b : b + p]` gets `factors[k] * of[i * p : (i + 1) * p]` added to it, b and p as there. Half vectors
    are quicker: most whole ones would be written across the border of two lines of the cache.
    """
    for number, stretch in write.parts(stretches, _SCATTERED):
        at = write.builder.mul(stretch, _INDEX(STRETCH_FLOATS))
        ways = [write.number(shifts, stretch, each) for each in range(number)]
        halves = range(0, number * STRETCH_FLOATS, _HALF_VECTOR.count)
        vectors = [write.vector(of, at, shift, _HALF_VECTOR) for shift in halves]
        with write.patches(to, begins, factors, count, ways, _HALF_VECTOR) as (factor, places):
            for vector, place in zip(vectors, places, strict=True):
                before = write.vector(*place, _HALF_VECTOR)
                write.put(write.plus_product(before, factor, vector), *place)


@_compiled_as
def _choose(write: _Writer, found: Any, corner: Any, width: Any, values: Any, places: Any, at: Any) -> None:
    """The largest number in each of LANES 2×2 blocks side by side, and its position.

    The first block's upper left corner is `found[corner]`, and lines are `width` long. Results go to
    `values[at : at + LANES]` and `places[at : at + LANES]`.
    """
    builder, rivals = write.builder, []
    for line in (corner, builder.add(corner, width)):
        left, right = write.vector(found, line), write.vector(found, line, LANES)
        begin = write.repeated(builder.trunc(line, _INTEGER), _INT_VECTOR)
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
    corners: Any,
    blocks: Any,
    width: Any,
    taps: Any,
    weights: Any,
    bias: Any,
    count: Any,
    values: Any,
    places: Any,
) -> None:
    """The largest of the weighted sums at the four positions of each 2×2 block, and its position.

    It works on n = OUTPUT_LANES outputs side by side. At position p their sums are `bias[:n]` plus
    `seen[begin + p + taps[t]] * weights[t]` for all `count` t, where `weights[t]` is a line of n. The upper
    left corner of block k is `corners[k]`, and lines are `width` long. Its results go to line k of `values`
    and `places`, lines of n, for all k below `blocks`.
    """
    builder, sample = write.builder, write.place(seen, begin)
    for number, block in write.parts(blocks, _AT_A_TIME):
        positions = []
        for each in range(number):
            upper = builder.zext(write.number(corners, block, each), _INDEX)
            positions += [(line, right) for line in (upper, builder.add(upper, width)) for right in (0, 1)]
        sums = [write.sums(bias, _INDEX(0), OUTPUT_LANES) for _ in positions]
        lines = [write.place(sample, line, right) for line, right in positions]
        with cgutils.for_range(builder, count) as loop:
            tap = write.number(taps, loop.index)
            first = builder.mul(loop.index, _INDEX(OUTPUT_LANES))
            vectors = [write.vector(weights, first, shift) for shift in range(0, OUTPUT_LANES, LANES)]
            for line, totals in zip(lines, sums, strict=True):
                factor = write.repeated(write.number(line, tap))
                for total, vector in zip(totals, vectors, strict=True):
                    write.add(total, factor, vector)
        where = [
            write.repeated(builder.trunc(builder.add(line, _INDEX(right)), _INTEGER), _INT_VECTOR)
            for line, right in positions
        ]
        for each in range(number):
            to = builder.mul(builder.add(block, _INDEX(each)), _INDEX(OUTPUT_LANES))
            four = slice(4 * each, 4 * each + 4)
            for shift, lanes in enumerate(zip(*sums[four], strict=True)):
                rivals = [builder.load(total) for total in lanes]
                best, place = write.largest(zip(rivals, where[four], strict=True))
                write.put(best, values, to, LANES * shift)
                write.put(place, places, to, LANES * shift)


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
            vector = write.vector(seen, line, LANES * number)
            builder.store(builder.fadd(builder.load(total), vector), total)
            write.add(square, vector, vector)
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
    bound, nothing = write.repeated(above), ir.Constant(_FLOAT_VECTOR, [0.0] * LANES)
    with cgutils.for_range(builder, count) as loop:
        line = builder.add(at, builder.mul(loop.index, pitch))
        for number, (total, product) in enumerate(zip(plain, weighted, strict=True)):
            is_open = builder.fcmp_ordered(">", write.vector(outputs, line, LANES * number), bound)
            passed = builder.select(is_open, write.vector(gradient, line, LANES * number), nothing)
            write.put(passed, to, line, LANES * number)
            builder.store(builder.fadd(builder.load(total), passed), total)
            write.add(product, passed, write.vector(inputs, line, LANES * number))
    write.put_sums(plain, sums, lane)
    write.put_sums(weighted, products, lane)


# The types of the intrinsics as compiled loops call them.
_Patches = Callable[[Floats, int, Floats, Indices, Floats, int, Indices], None]
add_weighted = cast(
    "Callable[[Floats, Floats, int, Floats, Indices, Floats, Floats, int], None]", _add_weighted
)
gather = cast("_Patches", _gather)
scatter = cast("_Patches", _scatter)
choose = cast("Callable[[Floats, int, int, Floats, Places, int], None]", _choose)
strongest = cast(
    "Callable[[Floats, int, Places, int, int, Indices, Floats, Floats, int, Floats, Places], None]",
    _strongest,
)
add_squares = cast("Callable[[Floats, int, int, int, Floats, Floats, int], None]", _add_squares)
add_passed = cast(
    "Callable[[Floats, Floats, np.float32, Floats, Floats, int, int, int, Floats, Floats, int], None]",
    _add_passed,
)
