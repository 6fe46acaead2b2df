"""A scenario from its file to its report: the whole story on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analytics.report import ParticipationReport
from attacks.disaggregation import NotFiniteError, ProblemError, Recovery
from attacks.view import AttackerView
from fedsim.core.errors import UserError
from fedsim.core.files import write_json, write_text
from fedsim.core.progress import Progress, silent
from fedsim.core.seeds import Stage, stream_seed
from fedsim.tasks.text import NextWord
from fedsim.training.device import device_type
from fedsim.training.local_training import Evaluation
from fedsim.trusted.truth import Truth
from scenarios.cpu import cpu_seconds
from scenarios.run.attack_process import attack_process
from scenarios.run.costs import messages_per_round, score_cohorts, score_counts
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import INLINE, Runtime
from scenarios.run.history import Listener, read_curve
from scenarios.run.inference.figures import figures
from scenarios.run.inference.findings import Findings
from scenarios.run.inference.run import Bar, InferenceRun, no_bar
from scenarios.run.report import render_report
from scenarios.run.result import Identity, Result, read_honest
from scenarios.run.scenario import Scenario
from scenarios.run.scores import Score
from scenarios.run.scoring import named, score_disaggregation
from scenarios.run.sections import Analytics, Honest, InferenceCost, Simulation, Trained, Training
from scenarios.run.simulate import diverged, simulate, simulate_rounds
from scenarios.run.world import World


def run_scenario(
    world: World,
    directory: RunDirectory,
    *,
    engine: Runtime = INLINE,
    training: Progress = silent,
    solving: Progress = silent,
    inferring: Bar = no_bar,
    listeners: Sequence[Listener] = (),
) -> Result:
    """Simulate, attack, score and report. Every step after the simulation reads only files.

    An interrupted run continues from its checkpoint, which is removed when the run is complete. `listeners`
    get every point of the training curves.
    """
    # The imports of the attacks take place beside the training.
    attack_process(world.scenario.attack, directory.path)
    trained = train_run(world, directory, engine=engine, training=training, listeners=listeners)
    result = attack_run(
        world.scenario,
        directory,
        trained.published(publish(world.scenario, directory)),
        world=world,
        solving=solving,
        inferring=inferring,
    )
    directory.checkpoint.unlink(missing_ok=True)
    return result


def train_run(
    world: World,
    directory: RunDirectory,
    *,
    engine: Runtime = INLINE,
    training: Progress = silent,
    listeners: Sequence[Listener] = (),
) -> Trained:
    """Simulate only: leave transcript, truth and answers; return the figures that nothing later changes."""
    write_text(directory.scenario, world.scenario.to_toml())
    simulation = simulate(world, directory, engine, training, listeners=listeners)
    cohorts = score_cohorts(Truth.load(directory.truth))
    return Trained(
        simulation=Simulation(
            seconds=simulation.seconds,
            rounds=world.scenario.federation.rounds,
            void_rounds=simulation.void_rounds,
            data=world.data.fingerprint,
        ),
        training=_training(world, simulation.evaluation),
        defences=tuple(d.statement(cohorts.rounds_per_client.most) for d in world.scenario.defences),
        cohorts=cohorts,
        messages=messages_per_round(world, ParticipationReport.read_csv(directory.answers)),
    )


def _training(world: World, evaluation: Evaluation) -> Training:
    """The figures of the trained model, beside those of a model without any training."""
    task, data = world.data.task, world.data
    unigram = None
    if isinstance(task, NextWord):
        unigram = task.unigram_perplexity(data.train.targets, data.test.targets)
    return Training(
        test_accuracy=evaluation.metric,
        metric=task.metric.name,
        test_perplexity=evaluation.further.get("perplexity"),
        unigram_perplexity=unigram,
    )


def train_rounds(world: World, directory: RunDirectory, until: int, *, engine: Runtime) -> None:
    """Simulate the first `until` rounds; `train_run` continues from there."""
    write_text(directory.scenario, world.scenario.to_toml())
    simulate_rounds(world, directory, until, engine)


def publish(scenario: Scenario, directory: RunDirectory) -> Analytics:
    """Put the devices' answers through the release policies, and score the counts that come out."""
    answers = ParticipationReport.read_csv(directory.answers)
    counts, statements = scenario.analytics.publish(answers, scenario.seed)
    counts.write_csv(directory.counts)
    return score_counts(counts, statements, Truth.load(directory.truth))


def attack_run(
    scenario: Scenario,
    directory: RunDirectory,
    honest: Honest,
    *,
    world: World | None = None,
    solving: Progress = silent,
    inferring: Bar = no_bar,
    others: Sequence[Path] = (),
) -> Result:
    """Attack the transcript of a run, score the recovery against the truth, and write both and a report.

    Attacks run in a process that cannot read the truth, nor that of `others`: runs with the same truth.
    Disaggregation needs only the run's files. Inference
    also needs the scenario's `world`, because guesses are compared with the clients' examples; it is prepared
    here if it is not given.
    """
    attacker = attack_process(scenario.attack, directory.path, *others)
    if world is None and scenario.attack.inference:
        world = World.prepare(scenario)
    # Old runs do not state the fingerprint of their data.
    if world is not None and honest.simulation.data not in (None, world.data.fingerprint):
        raise UserError(
            f"{directory.path} was trained on other data than there are now, so guesses cannot be compared "
            "with them: restore the data, or run the scenario again"
        )
    view = AttackerView.load(directory.transcript, directory.counts)
    strangers = set(view.counts.clients.tolist()) - set(range(scenario.federation.clients))
    if strangers:
        raise UserError(f"{directory.counts}: {min(map(str, strangers))} is no client of this run")
    seed = stream_seed(scenario.seed, Stage.ATTACK)
    try:
        with attacker.session() as session:
            recovery = session.disaggregate(
                scenario.attack, view, seed=seed, progress=solving, device=device_type(scenario.engine.device)
            )
    except NotFiniteError as error:
        raise diverged(directory, error.row) from error
    except ProblemError as error:
        raise UserError(f"{directory.path}: {error}") from error
    # From here on files of an earlier attack are replaced: a refused attack leaves them as they were.
    with directory.sealed():
        recovery.save(directory.recovery)

        truth = Truth.load(directory.truth)
        score = score_disaggregation(recovery, truth, view.transcript, view.counts, defences=honest.defences)
        scores: dict[str, Score] = {}
        cost = None
        if world is not None and scenario.attack.inference:
            before = cpu_seconds()
            if score.pseudonymous:
                # Scoring needs to know whose updates they are. Attacks see the same updates, without names.
                recovery = named(recovery, truth)
            inference = InferenceRun(attacker, world, directory, view=view, recovery=recovery, truth=truth)
            scores = inference.run(inferring)
            cost = InferenceCost(cpu_seconds=cpu_seconds() - before + inference.cpu_seconds)
        result = Result.assemble(
            Identity(title=scenario.title, seed=scenario.seed),
            honest,
            score.model_copy(update={"cpu_seconds": session.cpu_seconds}),
            scores,
            cost,
        )
        write_text(directory.scenario, scenario.to_toml())
        write_json(directory.result, result.to_json())
        write_report(directory)
    return result


def honest_part(directory: RunDirectory) -> Honest:
    """The figures of a saved run that no attack changes."""
    return read_honest(directory.result)


def read_result(directory: RunDirectory) -> Result:
    """The saved figures of a run."""
    return Result.read(directory.result)


def write_report(directory: RunDirectory) -> None:
    """Draw the page from the files of a finished run."""
    result = read_result(directory)
    page = render_report(
        findings=[Findings.load(directory, key) for key, rows in figures(result).items() if rows],
        settings=directory.settings,
        result=result,
        recovery=Recovery.load(directory.recovery),
        truth=Truth.load(directory.truth),
        history=read_curve(directory.history),
        pace=read_curve(directory.pace),
    )
    write_text(directory.report, page)
