"""Worker processes that share this process's memory as it was when they were started."""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from fedsim.core.errors import ProcessLostError, RunFailedError, UserError
from fedsim.core.users_code import fault_of_users_code

Task = TypeVar("Task")

_LAST_MOMENT_S = 5
"""How long a worker whose pipe broke may take to end, so that its exit status can be told."""


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


class ForkedProcesses(Generic[Task]):
    """`size` processes, this one among them, that do `work` on the tasks they are given.

    The other processes are forked when there is more than one task for the first time, so that small runs do
    not pay for them. They inherit everything that `work` refers to, as the first task leaves it. Results go
    into shared memory; only tasks travel over the pipes, so tasks have to be small. Forking is safe because
    torch runs one thread in this project. On systems other than Linux all tasks run in this process.
    """

    def __init__(self, size: int, work: Callable[[Task], None]) -> None:
        self._size = size if sys.platform == "linux" else 1
        self._work = work
        self._pipes: list[Connection] = []
        self._processes: dict[Connection, BaseProcess] = {}

    def run(self, tasks: Sequence[Task]) -> None:
        """Do all tasks; their order alone decides which process does which."""
        own, *others = (tasks[first :: self._size] for first in range(self._size))
        if len(tasks) > 1 and self._size > 1 and not self._pipes:
            # The others inherit everything that the first task loads, compiles and allocates.
            self._work(own[0])
            own = own[1:]
            self._pipes = [self._fork() for _ in range(self._size - 1)]
        busy = [(pipe, share) for pipe, share in zip(self._pipes, others, strict=False) if share]
        for pipe, share in busy:
            with self._alive(pipe):
                pipe.send(share)
        for task in own:
            self._work(task)
        for pipe, _ in busy:
            with self._alive(pipe):
                fault: Exception | str | None = pipe.recv()
            if isinstance(fault, Exception):
                raise fault
            if fault is not None:
                raise RuntimeError(f"a worker process failed:\n{fault}")

    def close(self) -> None:
        """Let the other processes end."""
        for pipe in self._pipes:
            pipe.close()
        self._pipes, self._processes = [], {}

    @contextmanager
    def _alive(self, pipe: Connection) -> Iterator[None]:
        """A block that talks to a worker; raise a `ProcessLostError` if the worker is dead."""
        try:
            yield
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            process = self._processes[pipe]
            process.join(_LAST_MOMENT_S)
            status = process.exitcode or 0
            how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
            raise ProcessLostError(f"a worker process {how} (was memory short?)") from error

    def _fork(self) -> Connection:
        context = get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=self._serve, args=(theirs, ours), daemon=True)
        process.start()
        theirs.close()
        self._processes[ours] = process
        return ours

    def _serve(self, pipe: Connection, parents_end: Connection) -> None:
        """In a worker: answer each list of tasks with None, an error of one line, or a traceback."""
        # A worker must not collect the parent's garbage: remains of Ray would crash it.
        gc.freeze()
        # The pipe breaks when the parent ends for any reason; the parent handles Ctrl-C.
        parents_end.close()
        for other in self._pipes:
            other.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(EOFError, BrokenPipeError):
            while True:
                tasks = pipe.recv()
                try:
                    for task in tasks:
                        self._work(task)
                except (RunFailedError, UserError, MemoryError) as error:
                    pipe.send(error)
                    return
                except (Exception, SystemExit) as error:
                    blame = fault_of_users_code(error)
                    pipe.send(traceback.format_exc() if blame is None else UserError(blame))
                    return
                pipe.send(None)
