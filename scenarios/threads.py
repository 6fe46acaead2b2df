"""How many threads numerical libraries start."""

import os


def one_thread_each() -> None:
    """One, in this process if NumPy is not loaded yet, and in every process that it starts.

    Threads change the last digits, so that the same scenario would give other bytes on a machine with more
    cores; and processes that run side by side would fight for the cores. Who prefers otherwise sets the
    variables.
    """
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
