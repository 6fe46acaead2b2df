"""Runs the inference attacks of a scenario on every column, and keeps their guesses in files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attacks.disaggregation import Recovery
from attacks.inference.attack import Guesses, InferenceAttack, Watch
from attacks.inference.evidence import Evidence
from attacks.view import AttackerView
from fedsim.core.progress import Progress, silent
from fedsim.core.seeds import Stage, stream_seed
from fedsim.trusted.truth import Truth
from scenarios.run.attack_process import AttackProcess
from scenarios.run.directory import RunDirectory
from scenarios.run.inference.columns import Column, Columns, SentModels
from scenarios.run.inference.entries import entries
from scenarios.run.inference.findings import COHORT, Findings
from scenarios.run.inference.judge import Judge
from scenarios.run.inference.judges import JUDGES
from scenarios.run.inference.labels import label_histograms
from scenarios.run.scores import SCORES, Score
from scenarios.run.world import World

Bar = Callable[[str], Progress]
"""Makes a labelled progress bar."""


def no_bar(label: str) -> Progress:
    """Nobody watches."""
    return silent


@dataclass
class InferenceRun:
    """The inference attacks of a scenario on a recovery, each in a session of its own."""

    attacker: AttackProcess
    world: World
    directory: RunDirectory
    view: AttackerView = field(kw_only=True)
    recovery: Recovery = field(kw_only=True)
    truth: Truth = field(kw_only=True)
    cpu_seconds: float = field(default=0.0, init=False)
    """Processor time of the sessions so far."""

    def run(self, bar: Bar = no_bar) -> dict[str, Score]:
        """The scores by key; the guesses go to files."""
        # As for the clients: networks are small, and one thread gives the same digits on every machine.
        torch.set_num_threads(1)
        scores: dict[str, Score] = {}
        models = SentModels(self.world, self.view)
        for number, (key, attack) in enumerate(entries(self.world.scenario.attack.inference)):
            columns = Columns.choose(
                self.world, self.view, self.recovery, self.truth, attack.targets, models=models
            )
            score: dict[str, Any] = {
                "kind": attack.kind,
                "clients": len(columns.clients),
                "resolved": int(columns.resolved.sum()),
            }
            # If no client ever took part, there is nobody to attack and no figure.
            if len(columns.clients):
                seed = stream_seed(self.world.scenario.seed, Stage.ATTACK, number)
                findings, effort = self._attack(attack, key, columns, seed=seed, progress=bar(key))
                findings.save(self.directory)
                score |= {**JUDGES[attack.kind].score(findings), **effort}
            scores[key] = SCORES[attack.kind].model_validate(score)
        return scores

    def _attack(
        self, attack: InferenceAttack, key: str, columns: Columns, *, seed: int, progress: Progress
    ) -> tuple[Findings, dict[str, Any]]:
        """Attack every column, and measure the effort. The attack is not told which column it gets."""
        world, judge = columns.world, JUDGES[attack.kind]
        others = judge.cohort_candidates(world, attack)
        # Recovered updates come first: nothing that the session is shown later can help it with them.
        made: dict[str, Callable[[], Column]] = {
            "disaggregated": columns.disaggregated,
            "aggregate": columns.aggregate,
            "oracle": columns.oracle,
            **{f"{COHORT}{size}": partial(columns.cohort, size, others) for size in attack.cohorts},
        }
        preview = self.directory.inference / f"{key}_now.png"
        guesses: dict[str, NDArray[np.float32]] = {}
        effort: dict[str, dict[str, float]] = {"cohort_size": {}, "seconds": {}, "iterations": {}}
        with self.attacker.session() as session:
            session.begin_inference(attack, world.knowledge)
            for step, (name, column) in enumerate(made.items()):
                began, evidence = time.perf_counter(), _granted(attack, world, column())
                found = Guesses(np.zeros(0, dtype=np.float32))
                if len(evidence):
                    watch = _watch(progress, step, len(made), judge, preview)
                    # Every column gets the same random numbers, so that columns differ in evidence only.
                    found = session.infer(evidence, seed=seed, watch=watch)
                guesses[name] = found.values
                effort["cohort_size"][name] = evidence.clients
                effort["seconds"][name] = time.perf_counter() - began
                effort["iterations"][name] = found.iterations
        preview.unlink(missing_ok=True)  # the report shows the final guesses
        self.cpu_seconds += session.cpu_seconds
        progress(len(made) * 1000, len(made) * 1000)
        if not len(guesses["disaggregated"]):
            guesses["disaggregated"] = np.zeros((0, *guesses["oracle"].shape[1:]), dtype=np.float32)
        truth = judge.truth(world, columns.clients, attack)
        return Findings(key, attack.kind, columns.clients, columns.resolved, guesses, truth), effort


def _granted(attack: InferenceAttack, world: World, column: Column) -> Evidence:
    """The evidence of a column, with the label histograms if the scenario grants them.

    Of a sum that holds SCAFFOLD's control variates too, inference uses the updates alone.
    """
    evidence, dim = column.evidence, world.model.dim
    evidence = replace(evidence, updates=evidence.updates[:, :dim], starts=evidence.starts[:, :dim])
    if not attack.knows_labels:
        return evidence
    shares = [label_histograms(world, members).mean(axis=0) for members in column.members]
    return replace(evidence, label_shares=np.array(shares, dtype=np.float32))


def _watch(progress: Progress, step: int, steps: int, judge: Judge, file: Path) -> Watch:
    """Moves the bar through one column of several, and keeps the latest preview in a file."""

    def watch(done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
        progress(step * 1000 + 1000 * done // max(1, total), steps * 1000)
        if preview is not None:
            judge.save_preview(preview, file)

    return watch
