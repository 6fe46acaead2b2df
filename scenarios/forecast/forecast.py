"""A forecast: what fraction of the clients is exposed after how many rounds, before anything is run.

A client is exposed when it took part and its whole column is recovered. Two arguments give the curve.

*Counting.* Up to as many rounds as clients the sums cannot tell clients apart: their rank is the number of
rounds. Only counts that leave no choice, those of windows that are empty or full, give a column away. How
many clients have no other windows is a matter of binomial probabilities.

*Planted problems.* Beyond that, problems with the same rate, windows and noise are planted and attacked on
the spot. The number of rounds that an attack needs grows with the number of clients, all else equal, so that
for many clients a smaller problem is planted and its rounds are scaled up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Auto, Projection, Solver
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings
from scenarios.planted import Planted

PLANTED_CLIENTS = 64
NOISY_PLANTED_CLIENTS = 24
"""Clients of a planted problem at most: attacks on sums with noise take longer."""
LEAST_COHORT = 3.0
"""Clients per round that a smaller problem must have to be like the larger one."""
SEEDS, NOISY_SEEDS = (1, 2, 3), (1, 2)
STEPS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 2.0, 2.3, 2.7, 3.2, 4.0, 5.0, 6.5, 8.0)
"""Rounds of the planted problems, over their clients; the curve ends where nearly all are exposed."""
HALF, NEARLY_ALL = 0.5, 0.95

PLANTED, COUNTED = "planted", "counted"


def _quick(clients: int) -> Projection:
    """For sums without noise: an attack that gives up early. A patient one needs somewhat fewer rounds."""
    return Projection(prove=False, max_iterations=min(10_000, max(2_000, 160_000 // clients)))


class Setting(Settings):
    """A federation and its telemetry, as far as a forecast needs to know them; fields as in `Planted`."""

    clients: PositiveInt
    rate: float = Field(default=0.1, gt=0, le=1)
    window: PositiveInt = 10
    known: float = Field(default=1.0, ge=0, le=1)
    counts_noise: NonNegativeFloat = 0.0
    noise: NonNegativeFloat = 0.0
    dim: PositiveInt | None = None

    @model_validator(mode="after")
    def _dim_with_noise(self) -> Setting:
        if self.noise and self.dim is None:
            raise PydanticCustomError("dim", "with noise the number of entries, dim, is needed too")
        return self

    @property
    def planted_clients(self) -> int | None:
        """Clients of the problems to plant; None if these would have to be too large to be like this."""
        most = NOISY_PLANTED_CLIENTS if self.noise else PLANTED_CLIENTS
        if self.clients <= most:
            return self.clients
        return most if most * self.rate >= LEAST_COHORT else None

    def plant(self, step: float, seed: int) -> Planted:
        """The problem at so many rounds per client."""
        clients = self.planted_clients
        assert clients is not None
        solver: Solver = Auto() if self.noise else _quick(clients)
        return Planted(
            seed=seed,
            clients=clients,
            rounds=int(np.ceil(step * clients)),
            rate=self.rate,
            window=self.window,
            known=self.known,
            counts_sd=self.counts_noise,
            # The noise that a participant adds must not gain on the updates when both are fewer.
            dim=None if self.dim is None else max(1, round(self.dim * clients / self.clients)),
            noise_sd=self.noise,
            solver=solver,
        )

    def exposed_by_counts(self, rounds: int) -> float:
        """Expected fraction of clients that took part and whose counts leave no choice at all."""
        if self.counts_noise:
            return 0.0
        absent, present = (1 - self.rate) ** self.window, self.rate**self.window
        windows = rounds / self.window
        never = (self.known * absent) ** windows
        return float((self.known * (absent + present if self.window > 1 else 1)) ** windows - never)


@dataclass(frozen=True)
class Place:
    """A point of a curve: the expected `fraction` of exposed clients after so many `rounds`, and why."""

    rounds: int
    fraction: float
    basis: str


@dataclass(frozen=True)
class Forecast:
    """The curve of one setting, by rounds; `scale` is how many times more clients it has than was planted."""

    setting: Setting
    curve: tuple[Place, ...]
    scale: float

    def rounds_until(self, fraction: float) -> int | None:
        """The first round by which so many are exposed, between points as if on a line; None if beyond."""
        before = Place(0, 0.0, COUNTED)
        for place in self.curve:
            if place.fraction >= fraction:
                share = (fraction - before.fraction) / max(place.fraction - before.fraction, 1e-12)
                return int(np.ceil(before.rounds + max(share, 0.0) * (place.rounds - before.rounds)))
            before = place
        return None

    @property
    def first(self) -> int | None:
        """When one client is exposed."""
        return self.rounds_until(min(1 / self.setting.clients, HALF))

    @property
    def half(self) -> int | None:
        """When half of the clients are."""
        return self.rounds_until(HALF)

    @property
    def nearly_all(self) -> int | None:
        """When 95 % of the clients are."""
        return self.rounds_until(NEARLY_ALL)

    def figures(self) -> dict[str, Any]:
        """Everything, for machines."""
        return {
            "setting": self.setting.model_dump(exclude_none=True),
            "first": self.first,
            "half": self.half,
            "nearly_all": self.nearly_all,
            "rests_on": self.rests_on(),
            "curve": [{"rounds": p.rounds, "fraction": p.fraction, "basis": p.basis} for p in self.curve],
        }

    def rests_on(self) -> str:
        """What was planted and what was counted, in words."""
        planted = self.setting.planted_clients
        counted = f"counting up to {self.setting.clients} rounds"
        if planted is None:
            return f"{counted} only: at this rate a smaller problem would not be like the larger one"
        scaled = "" if self.scale == 1 else f", rounds times {self.scale:.3g}"
        return f"{counted}, then planted problems of {planted} clients{scaled}"


def forecast(setting: Setting, progress: Progress = silent) -> Forecast:
    """Count, plant and attack; the same setting gives the same forecast."""
    curve = list(_counted(setting))
    planted = setting.planted_clients
    scale = 1.0 if planted is None else setting.clients / planted
    seeds = NOISY_SEEDS if setting.noise else SEEDS
    for number, step in enumerate(STEPS if planted is not None else ()):
        progress(number, len(STEPS))
        problems = [setting.plant(step, seed) for seed in seeds]
        if curve[-1].rounds == round(problems[0].rounds * scale):
            continue  # so few clients that two steps are one
        fraction = float(np.mean([exposed(problem) for problem in problems]))
        curve.append(Place(round(problems[0].rounds * scale), fraction, PLANTED))
        if fraction >= NEARLY_ALL:
            break
    progress(len(STEPS), len(STEPS))
    return Forecast(setting, tuple(curve), scale)


def exposed(problem: Planted) -> float:
    """The fraction of clients that took part and whose column is stood by, rightly."""
    truth, recovery = problem.solve()
    right = (recovery.participation == truth.participation).all(axis=0)
    took_part = truth.participation.any(axis=0)
    return float((right & took_part & (recovery.outcome != Outcome.UNRESOLVED)).mean())


def _counted(setting: Setting) -> Iterator[Place]:
    """At up to 20 ends of windows, as far as there are no more rounds than clients."""
    windows = np.unique(np.linspace(1, max(1, setting.clients // setting.window), 20).astype(int))
    ends = [rounds for rounds in (windows * setting.window).tolist() if rounds < setting.clients]
    for rounds in (*ends, setting.clients):
        yield Place(rounds, setting.exposed_by_counts(rounds), COUNTED)


def compared(before: Forecast, after: Forecast, change: str) -> str:
    """What a change buys, in a sentence about half of the clients."""
    a, b = before.half, after.half
    match a, b:
        case None, _:
            return f"{change}: half of the clients are not exposed within the rounds tried even without it"
        case _, None:
            return f"{change} keeps more than half of the clients from being exposed in all rounds tried"
        case int(), int() if a < b:
            return f"{change} buys {b - a} rounds until half of the clients are exposed"
        case int(), int() if a > b:
            return f"{change} costs {a - b} rounds: half of the clients are exposed earlier"
    return f"{change} changes nothing for half of the clients"
