"""Who computes the clients' updates: one when it is asked for, or a whole round's ahead of that."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from fedsim.core.seeds import Stage, stream
from fedsim.data import ImageData, Owned
from fedsim.devices.processes import ForkedProcesses
from fedsim.federation import ClientSettings
from fedsim.models import Model
from fedsim.training.local_training import (
    FlatModel,
    as_input,
    images_used,
    initial_model,
    local_update,
    local_updates,
)
from fedsim.training.stacked import Descent, Holdings, Stack, are_few, stages_of
from fedsim.trusted.spool import Spool

_CLIENTS_TOGETHER = 5
"""Clients that are trained in one program. More would be a little cheaper, and occupy fewer cores."""

_IMAGES_TOGETHER = 128
"""Images in one step of clients that are trained together: with large batches there is little to gain."""


_CACHE_LINE = 16
"""Numbers of float32 in a line of the cache."""


@dataclass(frozen=True)
class Chunk:
    """Clients that train together in a round (counted from 0), and the row of the first one's update."""

    row: int
    clients: tuple[int, ...]
    round_index: int


class Trainer:
    """Computes updates; `owned` says whose images are whose.

    An update depends on the seed, the client, the round and the model that was sent. How it is computed,
    alone or together with others, changes its last digits only. Who trains together depends on who is invited
    and on nothing else, so that the same run gives the same bytes with any number of worker processes.
    What a `spool` holds is not computed again; the trainer with the most epochs of those in it fills it.
    """

    def __init__(
        self,
        *,
        data: ImageData,
        owned: Owned,
        model: Model,
        settings: ClientSettings,
        seed: int,
        workers: int = 1,
        spool: Spool | None = None,
    ) -> None:
        # The networks are small: one thread is fastest, and sums come out the same on every machine.
        torch.set_num_threads(1)
        self.settings, self.seed = settings, seed
        self._images, self._labels, self._owned = data.train_images, data.train_labels, owned
        self._image_shape = data.image_shape
        module = initial_model(model, data.image_shape, len(data.class_names), stream(seed, Stage.MODEL))
        self._stages = stages_of(module)
        if self._stages is not None:
            self._stack_images = torch.from_numpy(data.train_images).movedim(3, 1).contiguous()
        self._stacks: dict[tuple[int, bool], Stack] = {}
        self._scratch = FlatModel(module)
        self._workers = ForkedProcesses[Chunk](workers, self._train)
        self._sent: NDArray[np.float32] | None = None
        self._start = _shared(self._scratch.dim)
        self._spool = spool
        own = settings.local_epochs
        self._marks = tuple(number for number in (spool.epochs if spool else (own,)) if number <= own)
        self._rows = _shared(len(owned), len(self._marks), self._scratch.dim)
        self._ready: dict[tuple[int, int], int] = {}

    def images_used(self, client: int) -> int:
        """How many images a client's update stands for."""
        return images_used(len(self._owned[client]), self.settings)

    def update(self, client: int, round_index: int, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """A client's update in a round, (dim,) float32, if it is sent the model `start`.

        One that was prepared is lent: the memory is the trainer's, and the next `prepare` writes over it.
        """
        if self._spool is not None and self._spool.holds(client, round_index, start):
            return self._spool.read(client, round_index, self.settings.local_epochs)
        row = self._ready.pop((client, round_index), None)
        # Within a round all devices are sent the same object, which is quicker to see than the same numbers.
        if row is not None and (start is self._sent or np.array_equal(start, self._start)):
            lent: NDArray[np.float32] = self._rows[row, -1]
            return lent
        return self._alone(client, round_index, start)

    def prepare(self, clients: Sequence[int], round_index: int, start: NDArray[np.float32]) -> None:
        """Compute the updates of all these clients, which will be asked for one by one.

        Those of the last call are gone then, whoever has been lent them.
        """
        self._start[:] = self._sent = start
        trains = self.settings.failures.trains
        training = [client for client in clients if trains(self.seed, client, round_index)]
        if self._spool is not None:
            training = [c for c in training if not self._spool.holds(c, round_index, start)]
        chunks = self._chunks(training, round_index)
        self._workers.run(chunks)
        self._ready = {
            (client, round_index): chunk.row + place
            for chunk in chunks
            for place, client in enumerate(chunk.clients)
        }
        if self._spool is not None and self._marks == self._spool.epochs:
            for (client, _), row in self._ready.items():
                self._spool.write(client, round_index, start, self._rows[row])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.close()

    def _chunks(self, clients: Sequence[int], round_index: int) -> list[Chunk]:
        """Clients who own equally many images, in even groups."""
        by_size: dict[int, list[int]] = {}
        for client in clients:
            by_size.setdefault(len(self._owned[client]), []).append(client)
        chunks: list[Chunk] = []
        row = 0
        for size, group in by_size.items():
            together = self._together(min(images_used(size, self.settings), self.settings.batch_size))
            for part in np.array_split(group, -(-len(group) // together)):
                chunks.append(Chunk(row, tuple(part.tolist()), round_index))
                row += len(part)
        return chunks

    def _together(self, batch: int) -> int:
        """How many clients to train in one program; one, if the model cannot be stacked."""
        return 1 if self._stages is None else max(1, min(_CLIENTS_TOGETHER, _IMAGES_TOGETHER // batch))

    def _train(self, chunk: Chunk) -> None:
        """Compute the updates of a chunk; in any process."""
        rows = self._rows[chunk.row : chunk.row + len(chunk.clients)]
        if self._stages is None:
            for row, client in zip(rows, chunk.clients, strict=True):
                row[:] = self._alone(client, chunk.round_index, self._start, self._marks)
            return
        positions = {client: torch.from_numpy(self._owned[client]) for client in chunk.clients}
        owned = Holdings(self._stack_images, torch.from_numpy(self._labels), positions)
        local_updates(
            self._stack(len(chunk.clients), owned.size),
            torch.from_numpy(self._start),
            owned=owned,
            settings=self.settings,
            rngs=[self._rng(client, chunk.round_index) for client in chunk.clients],
            marks=self._marks,
            out=torch.from_numpy(rows),
        )

    def _alone(
        self, client: int, round_index: int, start: NDArray[np.float32], marks: Sequence[int] = ()
    ) -> NDArray[np.float32]:
        mine = self._owned[client]
        return local_update(
            self._scratch,
            start,
            images=as_input(self._images[mine]),
            labels=torch.from_numpy(self._labels[mine]),
            settings=self.settings,
            rng=self._rng(client, round_index),
            marks=marks,
        )

    def _stack(self, copies: int, images: int) -> Stack:
        assert self._stages is not None
        few = are_few(images, self._stages)
        if (copies, few) not in self._stacks:
            self._stacks[copies, few] = Stack(
                self._stages,
                copies=copies,
                image_shape=self._image_shape,
                descent=Descent(self.settings.lr, self.settings.momentum),
                few_images=few,
            )
        return self._stacks[copies, few]

    def _rng(self, client: int, round_index: int) -> np.random.Generator:
        return stream(self.seed, Stage.CLIENT, client, round_index)


def _shared(*shape: int) -> NDArray[np.float32]:
    """Float32 that this process shares with those forked off later; takes the memory that is written to.

    Every row begins where a line of the cache does: products are a fifth faster to write there.
    """
    *rows, length = shape
    pitch = -(-length // _CACHE_LINE) * _CACHE_LINE
    memory = np.frombuffer(mmap.mmap(-1, 4 * math.prod(rows) * pitch), dtype=np.float32)
    return memory.reshape(*rows, pitch)[..., :length]
