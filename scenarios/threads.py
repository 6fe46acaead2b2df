"""The number of threads of numerical libraries."""

import os


def one_thread_each() -> None:
    """Use one thread in every process that this one starts, and in this one if NumPy is not loaded yet.

    More threads would change the last digits, so that a machine with more cores would give other bytes. And
    processes that run side by side would compete for the cores. Environment variables that are already set
    stay.
    """
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
