"""Workers for independent blocks of work: threads of this process, or a Ray cluster.

The result of a block depends on the block alone, so nothing depends on the number of workers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, NonNegativeInt

from attacks.disaggregation.problem import ProblemError
from fedsim.core.errors import RunFailedError
from fedsim.core.settings import BY_NAME, Settings
from fedsim.grids.ray_start import start_ray

_Shared = TypeVar("_Shared")
_Block = TypeVar("_Block")
_Result = TypeVar("_Result")


class Threads(Settings):
    """Threads of this process; NumPy lets them run in parallel.

    `number` 0 means one thread per core that this process may use.
    """

    name: Literal["threads"] = "threads"
    number: NonNegativeInt = 0

    def map(
        self, work: Callable[[_Shared, _Block], _Result], shared: _Shared, blocks: Sequence[_Block]
    ) -> Iterator[_Result]:
        """work(shared, block) for every block, in their order."""
        from threadpoolctl import threadpool_limits

        if len(blocks) == 1:  # a pool would cost more than a small problem
            yield work(shared, blocks[0])
            return
        workers = self.number or len(os.sched_getaffinity(0))
        # BLAS threads would compete with ours. One BLAS thread per block also fixes the order of summation,
        # and so the bytes.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            yield from pool.map(lambda block: work(shared, block), blocks)


class RayCluster(Settings):
    """Tasks of a Ray cluster; shared data is put into its object store once.

    `address` is the address of a cluster, or "local" to start one.
    """

    name: Literal["ray"] = "ray"
    address: str = "local"

    def map(
        self, work: Callable[[_Shared, _Block], _Result], shared: _Shared, blocks: Sequence[_Block]
    ) -> Iterator[_Result]:
        """work(shared, block) for every block, in their order."""
        import ray

        started = not ray.is_initialized()
        if started:
            try:
                start_ray(self.address, "workers.address", logging_level=logging.ERROR)
            except RunFailedError as error:
                raise ProblemError(str(error)) from error
        try:
            common, task = ray.put(shared), cast(Any, ray.remote(_alone))
            pending = [task.remote(work, common, block) for block in blocks]
            for result in pending:
                yield ray.get(result)
        finally:
            if started:
                ray.shutdown()


def _alone(work: Callable[[_Shared, _Block], _Result], shared: _Shared, block: _Block) -> _Result:
    """One block, with one BLAS thread."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        return work(shared, block)


BlockWorkers = Annotated[Threads | RayCluster, Field(discriminator="name"), BY_NAME]
