"""The honest run: makes a scenario real as Flower apps, and leaves the public files and the truth."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from analytics.collection import CountCollector
from attacks.observing import ObservingStrategy
from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.progress import Progress, silent
from fedsim.engines.inline import InlineGrid
from fedsim.flower import parameters_of, vector_record
from fedsim.records import Transcript, TranscriptWriter
from fedsim.server.later_rounds import LaterRounds
from fedsim.training.local_training import accuracy, as_input
from fedsim.trusted.aggregation import TrustedAggregation
from fedsim.trusted.checkpoint import Checkpoint, Pace
from fedsim.trusted.diary import read_diaries
from fedsim.trusted.truth import TruthRecorder
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Engine, Inline, Runtime
from scenarios.run.server import defended_server
from scenarios.run.world import World


@dataclass(frozen=True)
class Simulation:
    """What is worth telling about the honest run itself."""

    seconds: float
    test_accuracy: float
    """Of the model that the server holds after the last round; a fixed model is still the first one."""
    void_rounds: int
    """Rounds in which too few devices delivered for their masks to come off."""


def simulate(
    world: World, directory: RunDirectory, engine: Runtime = Engine.INLINE, progress: Progress = silent
) -> Simulation:
    """Run the federation; leave transcript, truth and the devices' answers in the directory.

    On the inline engine, which keeps the devices' state in this process, it leaves checkpoints on the way
    and one after the last round. If the directory holds one already, the run goes on from there. A training
    that diverges ends there with the round in which it does, unless others wait for its shorter epochs.
    """
    seconds = _run(world, directory, world.scenario.federation.rounds, engine, progress)
    void_rounds = int(Transcript.load(directory.transcript).void.sum())
    return Simulation(seconds, _test_accuracy(world), void_rounds)


def simulate_rounds(world: World, directory: RunDirectory, until: int, engine: Runtime) -> None:
    """Run the first `until` rounds on the inline engine: a checkpoint is left, and `simulate` goes on."""
    _run(world, directory, until, engine, silent)


def _run(world: World, directory: RunDirectory, until: int, engine: Runtime, progress: Progress) -> float:
    """Rounds up to `until`, from a checkpoint if there is one: the seconds that all rounds so far took."""
    scenario, federation = world.scenario, world.scenario.federation
    before = (
        Checkpoint.load(directory.checkpoint)
        if directory.checkpoint.exists()
        else Checkpoint.at_start(world.model.read(), federation.clients, world.data.fingerprint)
    )
    if before.data != world.data.fingerprint:
        raise UserError(
            f"{directory.path} was begun with other data than there are now: put those back, or begin anew "
            "(--force, or without the folder)"
        )
    shared = isinstance(engine, Inline) and engine.spool is not None
    started, pace = time.perf_counter() - before.seconds, Pace()
    truth = TruthRecorder(federation.rounds, federation.clients, world.model.dim)
    truth.participation[: before.rounds] = before.participation

    with TranscriptWriter(
        directory.transcript, federation.rounds, world.model.layer_shapes, keep=before.rounds
    ) as transcript:
        # From the inside out: the server's own strategy, the tap on it, the wall that lets only sums
        # through, and telemetry beside all that.
        trusted = TrustedAggregation(
            ObservingStrategy(defended_server(world), transcript),
            schedule=world.schedule,
            aggregation=federation.aggregation,
            truth=truth,
            defences=scenario.defences,
            seed=scenario.seed,
        )
        collector = CountCollector(
            trusted,
            scenario.analytics.questions(
                rounds=federation.rounds, clients=federation.clients, seed=scenario.seed
            ),
        )
        collector.answers.extend(before.answers)
        server_app = ServerApp()

        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            def on_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
                done = before.rounds + server_round
                world.model.load(parameters_of(arrays))
                progress(done, federation.rounds)
                if isinstance(grid, InlineGrid) and not transcript.finite and not shared:
                    raise diverged(directory, done - 1)
                due = pace.is_due() or done == until
                if isinstance(grid, InlineGrid) and server_round and due:
                    with pace.writing():
                        transcript.sync()
                        Checkpoint(
                            rounds=done,
                            seconds=time.perf_counter() - started,
                            model=parameters_of(arrays),
                            participation=truth.participation[:done],
                            answers=collector.answers,
                            devices=grid.states,
                            data=before.data,
                        ).save(directory.checkpoint)
                return None

            if isinstance(grid, InlineGrid):
                grid.states = before.devices
            LaterRounds(collector, done=before.rounds).start(
                grid,
                vector_record(before.model),
                num_rounds=max(0, until - before.rounds),
                evaluate_fn=on_round,
            )
            if until == federation.rounds:
                truth.truth(read_diaries(grid)).save(directory.truth)

        engine.run(server_app, world)

    if until == federation.rounds:
        collector.report().write_csv(directory.answers)
    return time.perf_counter() - started


def diverged(directory: RunDirectory, round_index: int) -> RunFailedError:
    """What to raise when a sum turns out not to be finite."""
    return RunFailedError(
        f"{directory.path}: the training diverged: the sum of round {round_index} is not finite; "
        "lower clients.lr"
    )


def _test_accuracy(world: World) -> float:
    images, labels = as_input(world.data.test_images), torch.from_numpy(world.data.test_labels)
    return accuracy(world.model.module.eval(), images, labels)
