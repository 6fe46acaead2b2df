"""Computes the clients' updates: one on request, or those of a whole round in advance."""

from __future__ import annotations

import copy
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedsim.core import seeds
from fedsim.core.memory import keep_freed_memory
from fedsim.core.seeds import stream
from fedsim.data import Dataset, Owned
from fedsim.devices.processes import ForkedProcesses
from fedsim.federation import ClientSettings
from fedsim.models.architecture import Architecture
from fedsim.tasks.task import StackedTask
from fedsim.training.determinism import (
    check_same_update,
    draws,
    is_checked_twice,
    layers_draw,
    without_other_random_numbers,
)
from fedsim.training.local_training import (
    FlatModel,
    epochs,
    examples_used,
    initial_model,
    local_update,
    local_updates,
    path_length,
)
from fedsim.training.quick_layers import quickened
from fedsim.training.remembering import remembering
from fedsim.training.stacked import Sgd, Shards, Stack, Stage, are_few, stages_of
from fedsim.trusted.spool import Spool

if TYPE_CHECKING:
    from fedsim.training.cohort import Cohort

_CLIENTS_TOGETHER = 5
"""Clients that are trained side by side. More would be a little cheaper, but leave cores idle."""

_CLIENTS_ON_DEVICE = 32
"""Clients that are trained side by side on a GPU; not calibrated, because none was at hand."""

_EXAMPLES_TOGETHER = 128
"""Examples in one step of clients that are trained together: large batches gain little from company."""

_CACHE_LINE_FLOATS = 16
"""Float32 numbers in a line of the cache."""


@dataclass(frozen=True)
class Chunk:
    """Clients that train together in a round (counted from 0), and the row of the first client's update."""

    row: int
    clients: tuple[int, ...]
    round_index: int


class Trainer:
    """Computes updates; `owned` holds the positions of each client's examples.

    An update depends on the seed, the client, the round and the model that was sent. Training alone or
    together with others changes its last digits only. The invited clients alone decide who trains together,
    so that the same run gives the same bytes with any number of worker processes.
    Updates in a `spool` are not computed again; the trainer with the most epochs fills it.
    On a `device` other than the CPU one process trains, and many clients at once.
    """

    def __init__(
        self,
        *,
        data: Dataset,
        owned: Owned,
        model: Architecture,
        settings: ClientSettings,
        seed: int,
        workers: int = 1,
        spool: Spool | None = None,
        device: torch.device | None = None,
    ) -> None:
        # The networks are small: one thread is fastest, and sums come out the same on every machine.
        torch.set_num_threads(1)
        keep_freed_memory()
        self.settings, self.seed = settings, seed
        self._task, self._examples, self._owned = data.task, data.train, owned
        self._is_foreign = model.is_foreign
        module = initial_model(model, data.task, stream(seed, seeds.Stage.MODEL))
        self._draws = model.is_foreign or draws(module)
        self._device = device or torch.device("cpu")
        is_cpu = self._device.type == "cpu"
        self._remembering = remembering(module, settings)
        if self._remembering is not None:
            # What a client does depends on its earlier rounds: nothing can be shared or computed ahead.
            workers, spool = 1, None
        plain = settings.is_plain and self._remembering is None
        self._stacked = _stackable(data, module) if plain and is_cpu else None
        self._cohort: Cohort | None = None
        if not is_cpu:
            workers = 1
            if not self._draws and spool is None and self._remembering is None:
                from fedsim.training.cohort import Cohort

                self._cohort = Cohort(copy.deepcopy(module), data.task.loss, self._device)
        self._stacks: dict[tuple[int, bool], Stack] = {}
        self._arranged: dict[int, torch.Tensor] = {}
        self._channels_last = model.channels_last
        if is_cpu and not model.is_foreign:
            module = quickened(module, channels_last=self._channels_last)
        self._scratch = FlatModel(module, device, channels_last=self._channels_last)
        self._workers = ForkedProcesses[Chunk](min(workers, len(owned)), self._train)
        self._sent: NDArray[np.float32] | None = None
        self._start = _shared(self._scratch.dim)
        self._spool = spool
        own = settings.local_epochs
        self._marks = tuple(number for number in (spool.epochs if spool else ()) if number <= own)
        self._rows = _shared(len(owned), max(1, len(self._marks)), self._scratch.dim)
        self._ready: dict[tuple[int, int], int] = {}

    def examples_used(self, client: int) -> int:
        """How many examples a client's update stands for."""
        return examples_used(len(self._owned[client]), self.settings)

    def update(self, client: int, round_index: int, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """A client's update in a round, (dim,) float32, if it is sent the model `start`.

        A prepared update is lent: the memory is the trainer's, and the next `prepare` overwrites it.
        """
        if self._spool is not None and self._spool.holds(client, round_index, start):
            return self._spool.read(client, round_index, self.settings.local_epochs)
        row = self._ready.pop((client, round_index), None)
        # Within a round all devices are sent the same object: comparing objects is quicker than numbers.
        if row is not None and (start is self._sent or np.array_equal(start, self._start)):
            lent: NDArray[np.float32] = self._rows[row, -1]
            return lent
        return self._alone(client, round_index, start)

    def answer(
        self,
        client: int,
        round_index: int,
        sent: NDArray[np.float32],
        kept: NDArray[np.float32] | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """The vector that a device adds to a sum, before its weight, and the one that it keeps, if any.

        `sent` is what the server sent, and `kept` what this returned in the client's latest round. The first
        vector is lent, as in `update`.
        """
        if self._remembering is None:
            return self.update(client, round_index, sent), None
        path = path_length(len(self._owned[client]), self.settings.in_round(round_index))
        train = partial(self._alone, client, round_index)
        return self._remembering.answer(sent, kept, lambda x, c: train(x, correction=c), path=path)

    def prepare(self, clients: Sequence[int], round_index: int, start: NDArray[np.float32]) -> None:
        """Compute the updates of all these clients in advance; `update` then hands them out one by one.

        It overwrites the updates of the previous call, including those that were lent.
        """
        if self._remembering is not None:
            return
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
        """Clients that own equally many examples, in groups of even size."""
        by_size: dict[int, list[int]] = {}
        for client in clients:
            by_size.setdefault(len(self._owned[client]), []).append(client)
        chunks: list[Chunk] = []
        row = 0
        for size, group in by_size.items():
            together = self._together(min(examples_used(size, self.settings), self.settings.batch_size))
            for part in np.array_split(group, -(-len(group) // together)):
                chunks.append(Chunk(row, tuple(part.tolist()), round_index))
                row += len(part)
        return chunks

    def _together(self, batch: int) -> int:
        """How many clients to train side by side; one, if the model cannot be stacked."""
        if self._cohort is not None:
            return _CLIENTS_ON_DEVICE
        return 1 if self._stacked is None else max(1, min(_CLIENTS_TOGETHER, _EXAMPLES_TOGETHER // batch))

    def _train(self, chunk: Chunk) -> None:
        """Compute the updates of a chunk; in any process."""
        rows = self._rows[chunk.row : chunk.row + len(chunk.clients)]
        if self._cohort is not None:
            rows[:, 0] = self._on_device(self._cohort, chunk)
            return
        if self._stacked is None:
            for row, client in zip(rows, chunk.clients, strict=True):
                self._alone(client, chunk.round_index, self._start, self._marks, out=row)
            return
        shards = self._shards(self._stacked.task, chunk)
        local_updates(
            self._stack(self._stacked, len(chunk.clients), shards.size),
            torch.from_numpy(self._start),
            shards=shards,
            settings=self.settings.in_round(chunk.round_index),
            rngs=[self._rng(client, chunk.round_index) for client in chunk.clients],
            marks=self._marks,
            out=torch.from_numpy(rows),
        )

    def _shards(self, task: StackedTask, chunk: Chunk) -> Shards:
        """The examples of a chunk alone: most clients of a large federation wait, and need no second copy."""
        for client in chunk.clients:
            if client not in self._arranged:
                self._arranged[client] = task.arranged(self._examples.inputs[self._owned[client]])
        rows = np.concatenate([self._owned[client] for client in chunk.clients])
        places = torch.arange(len(rows)).view(len(chunk.clients), -1)
        return Shards(
            torch.cat([self._arranged[client] for client in chunk.clients]),
            torch.from_numpy(self._examples.targets[rows]),
            dict(zip(chunk.clients, places, strict=True)),
        )

    def _on_device(self, cohort: Cohort, chunk: Chunk) -> NDArray[np.float32]:
        """(clients, dim) the updates of a chunk; one copy to the device, and one back."""
        settings = self.settings.in_round(chunk.round_index)
        owned = np.stack([self._owned[client] for client in chunk.clients])
        inputs = self._task.as_inputs(self._examples.inputs[owned.ravel()])
        targets = self._task.as_targets(self._examples.targets[owned.ravel()])
        rngs = [self._rng(client, chunk.round_index) for client in chunk.clients]
        orders = zip(*(epochs(owned.shape[1], settings, rng) for rng in rngs), strict=True)
        batches = [
            batch.to(self._device)
            for order in orders
            for batch in torch.split(torch.from_numpy(np.stack(order)), settings.batch_size, dim=1)
        ]
        updates = cohort.updates(
            torch.from_numpy(self._start).to(self._device),
            inputs=inputs.to(self._device).view(*owned.shape, *inputs.shape[1:]),
            targets=targets.to(self._device).view(*owned.shape, *targets.shape[1:]),
            batches=batches,
            settings=settings,
        )
        back: NDArray[np.float32] = updates.cpu().numpy()
        return back

    def _alone(
        self,
        client: int,
        round_index: int,
        start: NDArray[np.float32],
        marks: Sequence[int] = (),
        correction: NDArray[np.float32] | None = None,
        *,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """One client's update; a `UserError` if a network of the user's draws random numbers of its own."""
        computed = partial(self._computed, client, round_index, start, marks, correction)
        if not self._draws:
            return computed(out=out)
        with layers_draw(self.seed, client, round_index), without_other_random_numbers():
            update = computed(out=out)
        if self._is_foreign and is_checked_twice(client, round_index):
            with layers_draw(self.seed, client, round_index):
                again = computed()
            check_same_update(update, again, client=client, round_index=round_index)
        return update

    def _computed(
        self,
        client: int,
        round_index: int,
        start: NDArray[np.float32],
        marks: Sequence[int],
        correction: NDArray[np.float32] | None,
        *,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        mine = self._owned[client]
        inputs = self._task.as_inputs(self._examples.inputs[mine]).to(self._device)
        return local_update(
            self._scratch,
            start,
            inputs=inputs.contiguous(memory_format=torch.channels_last) if self._channels_last else inputs,
            targets=self._task.as_targets(self._examples.targets[mine]).to(self._device),
            loss=self._task.loss,
            settings=self.settings.in_round(round_index),
            rng=self._rng(client, round_index),
            marks=marks,
            correction=correction,
            out=out,
        )

    def _stack(self, stacked: _Stacked, copies: int, examples: int) -> Stack:
        few = are_few(examples, stacked.stages)
        if (copies, few) not in self._stacks:
            self._stacks[copies, few] = Stack(
                stacked.stages,
                stacked.task,
                copies=copies,
                sgd=Sgd(self.settings.lr, self.settings.momentum),
                few_examples=few,
            )
        return self._stacks[copies, few]

    def _rng(self, client: int, round_index: int) -> np.random.Generator:
        return stream(self.seed, seeds.Stage.CLIENT, client, round_index)


@dataclass(frozen=True)
class _Stacked:
    """A task and a model in the form that stacked networks take."""

    task: StackedTask
    stages: list[Stage]


def _stackable(data: Dataset, module: nn.Module) -> _Stacked | None:
    """None if the task or the model cannot be stacked."""
    task, stages = data.task.stacked(), stages_of(module)
    if task is None or stages is None:
        return None
    return _Stacked(task, stages)


def _shared(*shape: int) -> NDArray[np.float32]:
    """Float32 that this process shares with processes forked later; only memory that is written to is taken.

    Every row begins on a line of the cache: products are a fifth faster to write there.
    """
    *rows, length = shape
    pitch = -(-length // _CACHE_LINE_FLOATS) * _CACHE_LINE_FLOATS
    memory = np.frombuffer(mmap.mmap(-1, 4 * math.prod(rows) * pitch), dtype=np.float32)
    return memory.reshape(*rows, pitch)[..., :length]
