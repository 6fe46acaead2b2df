"""The honest run: starts the federation of a world, and leaves its public files and the truth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.files import parsing
from fedsim.core.progress import Progress, silent
from fedsim.grids.memory import DeviceMemory
from fedsim.grids.metered import MeteredGrid
from fedsim.records import Transcript, TranscriptWriter
from fedsim.server.hooks import DivergedError, ReportProgress, RoundHook, StopAtDivergence
from fedsim.server.loop import RoundLoop
from fedsim.server.resuming import NotResumableError, resumable
from fedsim.training.local_training import Evaluation, evaluated
from fedsim.trusted.checkpoint import Checkpoint, SaveCheckpoints
from fedsim.trusted.diary import read_diaries
from fedsim.trusted.truth import TruthRecorder
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import INLINE, Runtime
from scenarios.run.final_model import save_model
from scenarios.run.history import Listener, RecordHistory
from scenarios.run.server import INTRODUCTIONS, build_server, build_strategy
from scenarios.run.world import World


@dataclass(frozen=True)
class Simulation:
    """The figures of the honest run itself."""

    seconds: float
    evaluation: Evaluation
    """Of the server's model after the last round; a fixed model is still the first one."""
    void_rounds: int
    """Rounds in which too few devices delivered to remove their masks."""


def simulate(
    world: World,
    directory: RunDirectory,
    engine: Runtime = INLINE,
    progress: Progress = silent,
    hooks: Sequence[RoundHook] = (),
    *,
    listeners: Sequence[Listener] = (),
) -> Simulation:
    """Run the federation; leave the transcript, the truth and the devices' answers in the directory.

    A run that can be resumed (see `obstacle_to_resuming`) saves checkpoints on the way and one after the last
    round. If the directory already holds a checkpoint, the run continues from there. `hooks` are called
    before the first round and after each. `listeners` get every point of the training curves.
    """
    rounds = world.scenario.federation.rounds
    history = RecordHistory(world, directory, listeners)
    hooks = [ReportProgress(progress, rounds), *hooks]
    seconds, model = _run_rounds(directory, rounds, engine, history, hooks)
    world.model.load(model[: world.model.dim])
    save_model(world.model.module, directory.model)
    void_rounds = int(Transcript.load(directory.transcript).void.sum())
    return Simulation(seconds, _evaluation(world), void_rounds)


def simulate_rounds(world: World, directory: RunDirectory, until: int, engine: Runtime) -> None:
    """Run the first `until` rounds only and leave a checkpoint, from which `simulate` continues."""
    _run_rounds(directory, until, engine, RecordHistory(world, directory))


def obstacle_to_resuming(world: World, engine: Runtime) -> str | None:
    """Why a killed run could not continue from a checkpoint, in one line; None if it could."""
    if not engine.can_resume:
        return f"the {engine.name} engine leaves no checkpoints to continue from"
    try:
        resumable(build_server(world)).state()
    except NotResumableError as error:
        return str(error)
    return None


def _run_rounds(
    directory: RunDirectory,
    until: int,
    engine: Runtime,
    history: RecordHistory,
    hooks: Sequence[RoundHook] = (),
) -> tuple[float, NDArray[np.float32]]:
    """Run rounds up to `until`; return the seconds that all rounds took so far, and the model after them."""
    world = history.world
    federation = world.scenario.federation
    obstacle = obstacle_to_resuming(world, engine)
    before = _starting_point(world, directory, obstacle)
    began = time.perf_counter() - before.seconds
    truth = TruthRecorder(federation.rounds, federation.clients, len(world.start))
    with TranscriptWriter(
        directory.transcript,
        federation.rounds,
        world.layer_shapes,
        keep=before.rounds,
        digests=before.transcript if before.rounds else None,
    ) as transcript:
        telemetry = build_strategy(world, transcript, truth)
        loop = RoundLoop(telemetry, before.model, done=before.rounds, hooks=hooks)
        if engine.stops_at_divergence:
            loop.hooks.append(StopAtDivergence(transcript))
        loop.hooks.append(history)

        def serve(grid: Grid, memory: DeviceMemory | None) -> None:
            if memory is not None and obstacle is None:
                with parsing(_other(directory)):
                    memory.restore(before.devices)
                loop.hooks.append(
                    SaveCheckpoints(
                        directory.checkpoint,
                        before,
                        until=until,
                        strategy=loop,
                        memory=memory,
                        transcript=transcript,
                    )
                )
            loop.run(MeteredGrid(grid, history.traffic, uncounted=INTRODUCTIONS), until)
            if until == federation.rounds:
                truth.save(directory.truth, read_diaries(grid))

        if before.rounds:
            with parsing(_other(directory)):
                loop.load_state(before.strategy)
        try:
            engine.run(serve, world)
        except DivergedError as error:
            raise diverged(directory, error.round_index) from error
        finally:
            history.write()
    if until == federation.rounds:
        telemetry.report().write_csv(directory.answers)
    return time.perf_counter() - began, loop.model


def _starting_point(world: World, directory: RunDirectory, obstacle: str | None) -> Checkpoint:
    """The checkpoint in the directory, or the state before the first round."""
    if not directory.checkpoint.exists():
        return Checkpoint.at_start(world.start, world.data.fingerprint)
    if obstacle is not None:
        raise UserError(f"{directory.path} holds an interrupted run that cannot be resumed: {obstacle}")
    before = Checkpoint.load(directory.checkpoint)
    fits = before.model.shape == world.start.shape and before.model.dtype == world.start.dtype
    if not fits or not 0 <= before.rounds <= world.scenario.federation.rounds:
        raise UserError(f"{_other(directory)}: its model or its round cannot be")
    if before.data != world.data.fingerprint:
        raise UserError(
            f"{directory.path} was started with other data than there are now: restore those data, or start "
            "again (with --force, or in another folder)"
        )
    return before


def _other(directory: RunDirectory) -> str:
    """The beginning of a message about a checkpoint that does not fit."""
    return f"{directory.checkpoint}: not a checkpoint of this scenario"


def diverged(directory: RunDirectory, round_index: int) -> RunFailedError:
    """The error to raise when a sum is not finite."""
    return RunFailedError(
        f"{directory.path}: the training diverged: the sum of round {round_index} is not finite; "
        "lower clients.lr"
    )


def _evaluation(world: World) -> Evaluation:
    task, test = world.data.task, world.data.test
    inputs, targets = task.as_inputs(test.inputs), task.as_targets(test.targets)
    return evaluated(task, world.model.module.eval(), inputs, targets)
