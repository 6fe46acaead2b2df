"""Pools for independent tasks: in this process, in local processes, or on a Ray cluster.

Each takes a function with its arguments and returns a `Future`.
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
    """Runs up to `number` tasks at a time; the exception of a task stays in its `Future`."""

    @property
    def number(self) -> int:
        """How many tasks can run at a time."""

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """Call the function later; it and its arguments must be picklable."""


class InProcess:
    """Runs each task at once in this process."""

    number = 1

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """Call the function now."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes:
    """Runs tasks in processes of this machine."""

    def __init__(self, pool: ProcessPoolExecutor, number: int) -> None:
        self._pool = pool
        self.number = number

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """Call the function in a worker."""
        return self._pool.submit(function, *arguments)


class RayCluster:
    """Runs tasks on a Ray cluster, one core each; Ray decides which cluster."""

    def __init__(self) -> None:
        import ray

        from fedsim.grids.ray_start import start_ray

        self._ray: Any = ray
        start_ray(ignore_reinit_error=True, include_dashboard=False)
        self.number = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        """Call the function in a worker."""
        future: Future[T] = self._ray.remote(num_cpus=1)(function).remote(*arguments).future()
        return future


@contextmanager
def local_pool(number: int) -> Iterator[Pool]:
    """Processes of this machine; if the block ends early, so do their tasks."""
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
    """A Ray cluster, which is disconnected at the end."""
    import ray

    try:
        yield RayCluster()
    finally:
        ray.shutdown()


def _begin(cores: SimpleQueue[int], stop: Connection) -> None:
    """Set up a worker: pin it to one core, because trainings and attacks use all cores that they see.

    The worker exits at once when its parent ends or closes `stop`, because an unwanted task may take hours.
    The parent handles Ctrl-C.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, {cores.get()})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel, stop])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
