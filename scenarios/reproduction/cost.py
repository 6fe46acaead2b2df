"""Estimates of what points cost on this machine, from problems and local steps that are timed first.

The cost of an attack is scaled from a timed problem of its kind by size. The search time of hopeless problems
cannot be predicted, so their estimates are rough. The cost of a training is its number of local steps. They
are timed as the trainer runs them: with the same model and batch size, several clients together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedsim.core.progress import Progress, silent
from fedsim.core.seeds import Stage, stream
from fedsim.federation import ClientSettings
from fedsim.models import Model
from scenarios.planted import Planted
from scenarios.run.scenario import Scenario
from scenarios.sweep.sweep import Point

EASY_PROBLEM = Planted(clients=128, rounds=256)
HARD_PROBLEM = Planted(clients=64, rounds=128, known=0.3)
NOISY_PROBLEM = Planted(clients=64, rounds=128, noise_sd=0.3, dim=8000)
LOST_PROBLEM = Planted(clients=24, rounds=48, noise_sd=3.0, dim=2000)
"""Noise so strong that little can be found: the search runs to its end."""
SIZE_EXPONENT = 0.7
"""Time grows with the size to this power; it is below 1 because large products are faster per entry."""
HOPELESS_SECONDS = 0.1
"""CPU seconds for a problem that the attack recognises as hopeless."""
TIMED_CLIENTS, TIMED_STEPS = 10, 4


@dataclass(frozen=True)
class Step:
    """The settings that decide the time of a local step."""

    model: Model
    batch_size: int
    momentum: bool

    @classmethod
    def of(cls, scenario: Scenario) -> Step:
        """The local steps of a scenario."""
        clients = scenario.clients
        batch_size = min(clients.batch_size, clients.examples_per_round)
        return cls(scenario.model, batch_size, clients.momentum > 0)

    def cpu_seconds(self) -> float:
        """Time a round in which all clients are invited, on noise in the form of CIFAR-10.

        Most of the paper's clients have CIFAR-10; other data are timed alike.
        """
        from fedsim.data.images.noise import cifar_like_noise
        from fedsim.devices.trainer import Trainer
        from fedsim.training.local_training import FlatModel, initial_model

        own = self.batch_size * TIMED_STEPS
        rng = np.random.default_rng(0)
        data = cifar_like_noise(TIMED_CLIENTS * own, rng)
        settings = ClientSettings(
            dataset_size=own,
            batch_size=self.batch_size,
            local_epochs=1,
            lr=0.01,
            momentum=0.9 if self.momentum else 0.0,
        )
        start = FlatModel(initial_model(self.model, data.task, rng)).read()
        everyone = range(TIMED_CLIENTS)
        with Trainer(
            data=data,
            owned=np.split(np.arange(len(data.train)), TIMED_CLIENTS),
            model=self.model,
            settings=settings,
            seed=0,
        ) as trainer:
            # The first round also pays for setting up.
            trainer.prepare(everyone, 0, start)
            seconds = _cpu_seconds(lambda: trainer.prepare(everyone, 1, start))
        return seconds / (TIMED_CLIENTS * TIMED_STEPS)


@dataclass(frozen=True)
class Speed:
    """CPU seconds on this machine for an easy, a hard, a noisy and a lost problem, and per local step."""

    easy: float
    hard: float
    noisy: float
    lost: float
    steps: Mapping[Step, float]

    @classmethod
    def measure(cls, points: Iterable[Point], progress: Progress = silent) -> Speed:
        """Time the four problems, and local steps of each kind among these points; takes some seconds."""
        steps = {Step.of(p.settings): 0.0 for p in points if isinstance(p.settings, Scenario)}
        # The first problem also pays for imports.
        problems = (EASY_PROBLEM, EASY_PROBLEM, HARD_PROBLEM, NOISY_PROBLEM, LOST_PROBLEM)
        tasks: list[Callable[[], float]] = [lambda p=p: _cpu_seconds(p.run) for p in problems]  # type: ignore[misc]
        tasks += [step.cpu_seconds for step in steps]
        seconds = []
        for number, task in enumerate(tasks):
            progress(number, len(tasks))
            seconds.append(task())
        _, easy, hard, noisy, lost, *each = seconds
        return cls(easy, hard, noisy, lost, dict(zip(steps, each, strict=True)))

    def seconds(self, points: Iterable[Point], *, share_epochs: bool = False) -> float:
        """CPU seconds for points; among shared trainings, only the longest counts."""
        attacks, trainings = 0.0, dict[str | None, float]()
        for point in points:
            settings = point.settings
            if isinstance(settings, Planted):
                attacks += self._planted(settings)
                continue
            attacks += self._attack(settings)
            shared = point.longer_training if share_epochs else point.training
            cost = self.steps[Step.of(settings)] * local_steps(settings)
            trainings[shared] = max(trainings.get(shared, 0.0), cost)
        return attacks + sum(trainings.values())

    def _planted(self, problem: Planted) -> float:
        if problem.rounds <= problem.clients:
            return HOPELESS_SECONDS
        if problem.noise_sd:
            return (
                _scaled(self.noisy, NOISY_PROBLEM, problem) + _scaled(self.lost, LOST_PROBLEM, problem)
            ) / 2
        if problem.rounds >= 2 * problem.clients and problem.rate <= 0.2 and _counts_are_good(problem):
            return _scaled(self.easy, EASY_PROBLEM, problem)
        return _scaled(self.hard, HARD_PROBLEM, problem)

    def _attack(self, scenario: Scenario) -> float:
        rounds, clients = scenario.federation.rounds, scenario.federation.clients
        return self._planted(Planted(clients=clients, rounds=rounds, noise_sd=1.0))


def cheap_first(points: Iterable[Point]) -> list[Point]:
    """Points sorted by training effort, then by solving effort."""
    return sorted(points, key=_effort)


def _effort(point: Point) -> tuple[float, float]:
    settings = point.settings
    if isinstance(settings, Planted):
        return 0.0, _size(settings.clients, settings.rounds)
    examples = local_steps(settings) * Step.of(settings).batch_size
    return examples, _size(settings.federation.clients, settings.federation.rounds)


def local_steps(scenario: Scenario) -> float:
    """The number of local steps of a training, over all invited clients."""
    federation, clients = scenario.federation, scenario.clients
    schedule = federation.participation.draw(
        federation.rounds, federation.clients, stream(scenario.seed, Stage.SCHEDULE)
    )
    return float(schedule.sum()) * clients.steps


def _counts_are_good(problem: Planted) -> bool:
    return problem.window <= 20 and problem.known > 0.5 and problem.counts_sd <= 0.5


def _scaled(seconds: float, solved: Planted, problem: Planted) -> float:
    ratio = _size(problem.clients, problem.rounds) / _size(solved.clients, solved.rounds)
    return seconds * float(ratio**SIZE_EXPONENT)


def _size(clients: int, rounds: int) -> float:
    return float(clients**2 * rounds)


def _cpu_seconds(task: Callable[[], object]) -> float:
    began = time.process_time()
    task()
    return time.process_time() - began


def duration(seconds: float) -> str:
    """A duration in a suitable unit."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return (
                f"~{seconds / length:.2g} {unit}"
                if seconds < 100 * length
                else f"~{seconds / length:.0f} {unit}"
            )
    return "–" if seconds == 0 else f"~{max(1, round(seconds))} s"
