"""What points will cost on this machine: a guess from a few problems that are solved on the spot.

Points are of four kinds. For each a small problem is timed, and scaled by the size of what is to be run. How
long an attack searches where there is little to find cannot be told beforehand: such kinds are wide guesses.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fedsim.progress import Progress, silent
from fedsim.schedule import Bernoulli
from scenarios.planted import Planted
from scenarios.scenario import Scenario, find_scenario, load_scenario
from scenarios.sweep.sweep import Point

EASY = Planted(clients=128, rounds=256)
HARD = Planted(clients=64, rounds=128, known=0.3)
NOISY = Planted(clients=24, rounds=48, noise_sd=0.3, dim=2000)
TRAINED = ("federation.rounds=3", "federation.clients=8", "data.train_images=256", "data.test_images=16")
GROWTH = 0.7
"""Exponent of the size by which a problem takes longer: large products are quicker per entry."""
NOTHING = 0.1
"""Seconds for a problem that is seen to be out of reach."""


@dataclass(frozen=True)
class Speed:
    """CPU seconds of this machine: for an easy, a hard and a noisy problem, and per local step."""

    easy: float
    hard: float
    noisy: float
    step: float

    @classmethod
    def measure(cls, progress: Progress = silent) -> Speed:
        """Solve and train a little; some seconds."""
        seconds = []
        # The first one also pays for imports.
        for number, problem in enumerate((EASY, EASY, HARD, NOISY)):
            progress(number, 5)
            seconds.append(_cpu_seconds(problem.run))
        _, easy, hard, noisy = seconds
        return cls(easy, hard, noisy, _seconds_per_step())

    def seconds(self, points: Iterable[Point], *, share_epochs: bool = False) -> float:
        """CPU seconds for points; of trainings that are shared the longest counts."""
        attacks, trainings = 0.0, dict[str | None, float]()
        for point in points:
            settings = point.settings
            if isinstance(settings, Planted):
                attacks += self._planted(settings)
                continue
            attacks += self._attack(settings)
            shared = point.longer_training if share_epochs else point.training
            trainings[shared] = max(trainings.get(shared, 0.0), _steps(settings))
        return attacks + self.step * sum(trainings.values())

    def _planted(self, problem: Planted) -> float:
        if problem.rounds <= problem.clients:
            return NOTHING
        if problem.noise_sd:
            return self.noisy * _size(problem) / _size(NOISY)
        if problem.rounds >= 2 * problem.clients and problem.rate <= 0.2 and _counts_are_good(problem):
            return self.easy * float((_size(problem) / _size(EASY)) ** GROWTH)
        return self.hard * float((_size(problem) / _size(HARD)) ** GROWTH)

    def _attack(self, scenario: Scenario) -> float:
        rounds, clients = scenario.federation.rounds, scenario.federation.clients
        return self._planted(Planted(clients=clients, rounds=rounds, noise_sd=1.0))


def _counts_are_good(problem: Planted) -> bool:
    return problem.window <= 20 and problem.known > 0.5 and problem.counts_sd <= 0.5


def _size(problem: Planted) -> float:
    return float(problem.clients**2 * problem.rounds)


def _steps(scenario: Scenario) -> float:
    """Local steps of a training, as far as the scenario tells."""
    clients = scenario.clients
    per_epoch = math.ceil(clients.dataset_size * clients.data_fraction / clients.batch_size)
    participations = scenario.federation.rounds * scenario.federation.clients * _rate(scenario)
    return participations * clients.local_epochs * per_epoch


def _rate(scenario: Scenario) -> float:
    drawn = scenario.federation.participation
    return drawn.rate if isinstance(drawn, Bernoulli) else 1.0


def _seconds_per_step() -> float:
    from scenarios.run_directory import RunDirectory
    from scenarios.runner import train_run
    from scenarios.world import World

    scenario = load_scenario(find_scenario("quickstart"), TRAINED)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", replace=False)
        world = World.prepare(scenario)
        return _cpu_seconds(lambda: train_run(world, directory)) / max(1.0, _steps(scenario))


def _cpu_seconds(task: Callable[[], object]) -> float:
    began = time.process_time()
    task()
    return time.process_time() - began


def duration(seconds: float) -> str:
    """About how long, in the unit that suits."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return (
                f"~{seconds / length:.2g} {unit}"
                if seconds < 100 * length
                else f"~{seconds / length:.0f} {unit}"
            )
    return "–" if seconds == 0 else f"~{max(1, round(seconds))} s"
