"""Where independent pieces of work run: here, in processes of this machine, or on a Ray cluster.

All three take a function and its arguments and hand out a `Future`.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scenarios.threads import one_thread_each

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

T = TypeVar("T")


class Pool(Protocol):
    """Takes work for a `number` of hands; a fault in it stays in its `Future`."""

    @property
    def number(self) -> int:
        """How many pieces of work can be under way at a time."""

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The outcome-to-be of calling the function; it and its arguments must be picklable."""


class InProcess:
    """Does the work at once, in this process: nothing to start, nothing to send."""

    number = 1

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The outcome of calling the function."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes:
    """Does the work in processes of this machine."""

    def __init__(self, pool: ProcessPoolExecutor, number: int) -> None:
        self._pool = pool
        self.number = number

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The outcome-to-be of calling the function."""
        return self._pool.submit(function, *arguments)


class RayCluster:
    """Does the work in Ray's processes, one core each: the cluster that Ray is told of, or this machine."""

    def __init__(self) -> None:
        import ray

        self._ray: Any = ray
        ray.init(ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)
        self.number = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """The outcome-to-be of calling the function."""
        future: Future[T] = self._ray.remote(num_cpus=1)(function).remote(*arguments).future()
        return future


@contextmanager
def local_pool(number: int) -> Iterator[Pool]:
    """Processes of this machine; whatever ends the block early ends their work too."""
    if number == 1:
        yield InProcess()
        return
    one_thread_each()
    # Not forked: torch's and Flower's threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    cores = spawn.SimpleQueue()
    for _, core in zip(range(number), itertools.cycle(sorted(os.sched_getaffinity(0))), strict=False):
        cores.put(core)
    stop, stopped = spawn.Pipe(duplex=False)
    arguments = (cores, stop)
    with ProcessPoolExecutor(number, mp_context=spawn, initializer=_begin, initargs=arguments) as pool:
        try:
            yield Processes(pool, number)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stopped.close()
            raise


@contextmanager
def ray_pool() -> Iterator[Pool]:
    """The processes of a Ray cluster, which is let go of at the end."""
    import ray

    try:
        yield RayCluster()
    finally:
        ray.shutdown()


def _begin(cores: SimpleQueue[int], stop: Connection) -> None:
    """A worker has one core: trainings and attacks, which would use all there are, then use that one.

    And it ends at once when the other end of `stop` is closed, or with its parent: work that nobody waits for
    may take hours. Ctrl-C is for the parent to handle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, {cores.get()})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel, stop])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
