"""A forecast: the fraction of clients that is exposed after a number of rounds, before anything runs.

A client is exposed when it took part and its whole column is recovered. Two arguments give the curve.

*Counting.* With at most as many rounds as clients, the sums cannot tell clients apart, because their rank is
the number of rounds. Only counts that leave no choice reveal a column: those of empty or full windows.
Binomial probabilities say how many clients have only such windows.

*Planted problems.* With more rounds, problems with the same rate, windows and noise are planted and attacked.
The number of rounds that an attack needs grows about in proportion to the number of clients. So for many
clients a smaller problem is planted, and its rounds are scaled up.

A second curve is the ceiling: what a genie that is told all other participations finds in the same problems
(`scenarios.run.ceiling`). It also covers fewer rounds than clients. There no attack of ours finds a column,
but sums with common participants are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Auto, Projection, Solver
from fedsim.core.progress import Progress, silent
from fedsim.core.settings import Settings
from scenarios.planted import Planted
from scenarios.run.scoring import score_disaggregation

MOST_PLANTED_CLIENTS = 64
MOST_NOISY_PLANTED_CLIENTS = 24
"""Most clients of a planted problem, without and with noise; attacks under noise take longer."""
LEAST_COHORT = 3.0
"""Fewest clients per round for a smaller problem to be like the larger one."""
SEEDS, NOISY_SEEDS = (1, 2, 3), (1, 2)
PLANTED_ROUNDS_PER_CLIENT = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 2.0, 2.3, 2.7, 3.2, 4.0, 5.0, 6.5, 8.0)
"""Rounds per client of the planted problems; the curve ends where nearly all clients are exposed."""
FEW_ROUNDS_PER_CLIENT = (0.25, 0.5, 0.75, 1.0)
"""Rounds per client of the problems before these, for the ceiling alone."""
HALF_EXPOSED, NEARLY_ALL_EXPOSED = 0.5, 0.95

PLANTED, COUNTED = "planted", "counted"


def _quick(clients: int) -> Projection:
    """For sums without noise: an attack that stops early. A longer search needs somewhat fewer rounds."""
    return Projection(prove=False, max_iterations=min(10_000, max(2_000, 160_000 // clients)))


class Setting(Settings):
    """The settings of a federation and its telemetry that a forecast needs; fields as in `Planted`."""

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
            raise PydanticCustomError("dim", "noise also needs dim, the number of entries of an update")
        return self

    @property
    def planted_clients(self) -> int | None:
        """Clients of the planted problems; None if a problem that is like this one would be too large."""
        most = MOST_NOISY_PLANTED_CLIENTS if self.noise else MOST_PLANTED_CLIENTS
        if self.clients <= most:
            return self.clients
        return most if most * self.rate >= LEAST_COHORT else None

    def plant(self, step: float, seed: int) -> Planted:
        """The problem with `step` rounds per client."""
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
            # Fewer clients and entries keep the ratio of noise to updates.
            dim=None if self.dim is None else max(1, round(self.dim * clients / self.clients)),
            noise_sd=self.noise,
            solver=solver,
        )

    def exposed_by_counts(self, rounds: int) -> float:
        """Expected fraction of clients that took part and whose counts leave no choice."""
        if self.counts_noise:
            return 0.0
        absent, present = (1 - self.rate) ** self.window, self.rate**self.window
        windows = rounds / self.window
        never = (self.known * absent) ** windows
        return float((self.known * (absent + present if self.window > 1 else 1)) ** windows - never)


@dataclass(frozen=True)
class CurvePoint:
    """The expected `fraction` of exposed clients after a number of `rounds`, and its `basis`."""

    rounds: int
    fraction: float
    basis: str


@dataclass(frozen=True)
class Forecast:
    """The curve of one setting; `scale` is its number of clients relative to the planted problems.

    `ceiling` is the curve of what the evidence could give at best, where it is known.
    """

    setting: Setting
    curve: tuple[CurvePoint, ...]
    scale: float
    ceiling: tuple[CurvePoint, ...] = ()

    @property
    def first(self) -> int | None:
        """Rounds until one client is exposed."""
        return _rounds_until(self.curve, min(1 / self.setting.clients, HALF_EXPOSED))

    @property
    def half(self) -> int | None:
        """Rounds until half of the clients are exposed."""
        return _rounds_until(self.curve, HALF_EXPOSED)

    @property
    def nearly_all(self) -> int | None:
        """Rounds until 95 % of the clients are exposed."""
        return _rounds_until(self.curve, NEARLY_ALL_EXPOSED)

    @property
    def half_at_best(self) -> int | None:
        """Rounds of the first planted problem whose evidence could expose half of the clients.

        It is no later than `half`: an attack shows what is possible.
        """
        planted = [point.rounds for point in self.ceiling if point.fraction >= HALF_EXPOSED]
        shown = [self.half] if self.ceiling and self.half is not None else []
        return min((*planted, *shown), default=None)

    def figures(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {
            "setting": self.setting.model_dump(exclude_none=True),
            "first": self.first,
            "half": self.half,
            "nearly_all": self.nearly_all,
            "half_at_best": self.half_at_best,
            "rests_on": self.rests_on(),
            "curve": [asdict(point) for point in self.curve],
            "ceiling": [asdict(point) for point in self.ceiling],
        }

    def rests_on(self) -> str:
        """What the forecast is based on, in words."""
        planted = self.setting.planted_clients
        counted = f"counting up to {self.setting.clients} rounds"
        if planted is None:
            return f"{counted} only: at this rate no smaller problem is like the larger one"
        scaled = "" if self.scale == 1 else f", rounds times {self.scale:.3g}"
        return f"{counted}, then planted problems of {planted} clients{scaled}"


def _rounds_until(curve: Sequence[CurvePoint], fraction: float) -> int | None:
    """The first round with this fraction exposed, by linear interpolation; None if beyond the curve."""
    before = CurvePoint(0, 0.0, COUNTED)
    for place in curve:
        if place.fraction >= fraction:
            share = (fraction - before.fraction) / max(place.fraction - before.fraction, 1e-12)
            return int(np.ceil(before.rounds + max(share, 0.0) * (place.rounds - before.rounds)))
        before = place
    return None


def forecast(setting: Setting, progress: Progress = silent) -> Forecast:
    """Count, plant and attack. The same setting gives the same forecast."""
    curve, ceiling = list(_counted(setting)), list[CurvePoint]()
    planted = setting.planted_clients
    if planted is None:
        return Forecast(setting, tuple(curve), 1.0)
    scale = setting.clients / planted
    seeds = NOISY_SEEDS if setting.noise else SEEDS
    steps = (*FEW_ROUNDS_PER_CLIENT, *PLANTED_ROUNDS_PER_CLIENT)
    rounds = 0
    for number, step in enumerate(steps):
        progress(number, len(steps))
        problems = [setting.plant(step, seed) for seed in seeds]
        before, rounds = rounds, round(problems[0].rounds * scale)
        if rounds == before:
            continue  # with few clients, two steps can be the same
        rising = not ceiling or ceiling[-1].fraction < NEARLY_ALL_EXPOSED
        if step in FEW_ROUNDS_PER_CLIENT and not rising:
            continue
        found = [exposure(problem, ceiling=rising) for problem in problems]
        at_best = [exposed.at_best for exposed in found if exposed.at_best is not None]
        if len(at_best) == len(found):
            # The genie judges single rounds, and may find less than counts that leave no choice.
            best = max(float(np.mean(at_best)), setting.exposed_by_counts(rounds))
            ceiling.append(CurvePoint(rounds, best, PLANTED))
        # Up to as many rounds as clients, counting is exact and the attack only guesses.
        if step not in FEW_ROUNDS_PER_CLIENT and rounds > curve[-1].rounds:
            curve.append(CurvePoint(rounds, float(np.mean([e.by_attack for e in found])), PLANTED))
            if curve[-1].fraction >= NEARLY_ALL_EXPOSED:
                break
    progress(len(steps), len(steps))
    return Forecast(setting, tuple(curve), scale, tuple(ceiling))


@dataclass(frozen=True)
class Exposure:
    """Fraction of clients that took part and whose column is found `by_attack`, and `at_best`.

    At best is None if it was not asked for, or if there is no ceiling, such as after a handful of rounds.
    """

    by_attack: float
    at_best: float | None


def exposure(problem: Planted, *, ceiling: bool) -> Exposure:
    """Plant, attack and compare with the truth; with the `ceiling` if wanted."""
    truth, transcript, counts = problem.plant()
    recovery = problem.attack(transcript, counts)
    right = (recovery.participation == truth.participation).all(axis=0)
    exposed = right & truth.participation.any(axis=0) & (recovery.outcome != Outcome.UNRESOLVED)
    by_attack = float(exposed.mean())
    if not ceiling:
        return Exposure(by_attack, None)
    score = score_disaggregation(recovery, truth, transcript, counts, made_beside_truth=True)
    best = score.ceiling.singled_out_fraction if score.ceiling else None
    return Exposure(by_attack, None if best is None else max(best, by_attack))


def _counted(setting: Setting) -> Iterator[CurvePoint]:
    """Points at up to 20 ends of windows, with at most as many rounds as clients."""
    windows = np.unique(np.linspace(1, max(1, setting.clients // setting.window), 20).astype(int))
    ends = [rounds for rounds in (windows * setting.window).tolist() if rounds < setting.clients]
    for rounds in (*ends, setting.clients):
        yield CurvePoint(rounds, setting.exposed_by_counts(rounds), COUNTED)


def compared(before: Forecast, after: Forecast, change: str) -> str:
    """The effect of a change on half of the clients, in a sentence."""
    a, b = before.half, after.half
    if b is None:
        return f"with {change}, {_not_half(after)}"
    if a is None:
        return f"{change} exposes half of the clients after {b} rounds; without it, {_not_half(before)}"
    if a == b:
        return f"{change} does not change when half of the clients are exposed"
    if a < b:
        return f"{change} delays the exposure of half of the clients by {b - a} rounds"
    return f"{change} exposes half of the clients {a - b} rounds earlier"


def _not_half(found: Forecast) -> str:
    """Why no number of rounds is known after which half of the clients are exposed."""
    if found.setting.planted_clients is None:
        return "counting exposes less than half of the clients, and no attack was tried"
    best = found.half_at_best
    at_best = "" if best is None else f"; at best {best} rounds are enough"
    return f"our attack exposes less than half of the clients within the rounds tried{at_best}"
