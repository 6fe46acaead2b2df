"""Eight numbers at a time: what a compiler of loops would have to prove, said outright."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import void
from numba.extending import intrinsic
from numpy.typing import NDArray

_EIGHT = ir.VectorType(ir.FloatType(), 8)
_FIRST = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)


@intrinsic
def _add_eight(typing: Any, to: Any, at: Any, factor: Any, of: Any, begin: Any) -> Any:
    """`to[at : at + 8] += factor * of[begin : begin + 8]`, for contiguous float32, without any check.

    A loop over the eight would not become one instruction: as far as a compiler knows `to` and `of` overlap.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def place(array: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, values[array]).data
            return builder.bitcast(builder.gep(data, [values[array + 1]]), _EIGHT.as_pointer())

        target, source = place(0), place(3)
        nothing = ir.Constant(_EIGHT, ir.Undefined)
        one = builder.insert_element(nothing, values[2], ir.Constant(ir.IntType(32), 0))
        product = builder.fmul(
            builder.shuffle_vector(one, nothing, _FIRST), builder.load(source, align=4), flags=("contract",)
        )
        total = builder.fadd(builder.load(target, align=4), product, flags=("contract",))
        builder.store(total, target, align=4)
        return context.get_dummy_value()

    return void(to, at, factor, of, begin), generate


add_eight = cast(
    "Callable[[NDArray[np.float32], int, np.float32, NDArray[np.float32], int], None]", _add_eight
)
"""As it is called in compiled loops."""
