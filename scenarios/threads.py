"""The number of threads of numerical libraries."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread_each() -> None:
    """Use one thread in every process that this one starts, and in this one if NumPy is not loaded yet.

    More threads would change the last digits, so that a machine with more cores would give other bytes. And
    processes that run side by side would compete for the cores. Environment variables that are already set
    stay.
    """
    for variable in _VARIABLES:
        os.environ.setdefault(variable, "1")


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in this block, and in every process that it starts, as the `fedsim` command does.

    A program that calls fedsim may have loaded NumPy before, with as many threads as there are cores.
    """
    from threadpoolctl import threadpool_limits

    before = {variable: os.environ.get(variable) for variable in _VARIABLES}
    one_thread_each()
    try:
        with threadpool_limits(1):
            yield
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
