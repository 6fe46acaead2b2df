"""Server optimisers undone: from the models of consecutive rounds back to the mean update of each round.

`models` (n + 1, dim) are a model and the n models after it. Every server here is a class with its settings as
fields, named as in Flower, and `means` gives the mean updates (n, dim). `forgets` is the number of rounds
after which a server has forgotten a round that is missing; None if it never forgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsim.core.errors import UserError


class Server(Protocol):
    """What a server made of the mean update of a round."""

    @property
    def forgets(self) -> int | None:
        """Rounds after a gap whose mean cannot be told; None if no later round's can."""

    def means(self, models: Iterator[ArrayLike], first_round: int) -> Iterator[NDArray[np.float64]]:
        """The mean update (dim,) of every round after the first model; `first_round` counts from 0."""


@dataclass(frozen=True)
class FedAvg:
    """The next model is the mean of the clients' models: the step is the mean update."""

    forgets: ClassVar[int | None] = 0

    def means(self, models: Iterator[ArrayLike], first_round: int) -> Iterator[NDArray[np.float64]]:
        """Differences."""
        before = np.asarray(next(models), dtype=np.float64)
        for model in models:
            after = np.asarray(model, dtype=np.float64)
            yield after - before
            before = after


@dataclass(frozen=True)
class FedAvgM:
    """Momentum: the step is the learning rate times v, where v is the mean update plus β times the last v."""

    server_learning_rate: float = 1.0
    server_momentum: float = 0.9
    forgets: ClassVar[int | None] = 1

    def means(self, models: Iterator[ArrayLike], first_round: int) -> Iterator[NDArray[np.float64]]:
        """Without the last momentum; it is zero before round 0 only."""
        last: NDArray[np.float64] | float = 0.0 if first_round == 0 else np.nan
        for step in FedAvg().means(models, first_round):
            momentum = step / self.server_learning_rate
            yield momentum - self.server_momentum * last
            last = momentum


@dataclass(frozen=True)
class FedAdam:
    """Adam of Flower: x + η_t m / (√v + τ), with m and v the running means of the update and of its square.

    With the step d = (x' - x) / η_t known, m = d (√v + τ) is a quadratic equation for an entry of the update.
    It has one solution of the right sign while |d| √(1-β₂) < 1-β₁. An entry that steps further is NaN from
    then on, because m and v are not known any more.
    """

    eta: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    forgets: ClassVar[int | None] = None

    def means(self, models: Iterator[ArrayLike], first_round: int) -> Iterator[NDArray[np.float64]]:
        """Entry by entry; m and v are zero before round 0 only."""
        known = 0.0 if first_round == 0 else np.nan
        m: NDArray[np.float64] | float = known
        v: NDArray[np.float64] | float = known
        for index, step in enumerate(FedAvg().means(models, first_round)):
            update = _solved(
                step / self._rate(first_round + index),
                m=self.beta_1 * np.asarray(m),
                v=self._decay * np.asarray(v),
                a=1 - self.beta_1,
                b=self._gain,
                tau=self.tau,
            )
            yield update
            m = self.beta_1 * m + (1 - self.beta_1) * update
            v = self._decay * v + self._gain * update**2

    @property
    def _decay(self) -> float:
        return self.beta_2

    @property
    def _gain(self) -> float:
        return 1 - self.beta_2

    def _rate(self, round_index: int) -> float:
        """Flower's correction of the bias counts rounds from 1, and adds another one."""
        t = round_index + 2.0
        return float(self.eta * np.sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t))


@dataclass(frozen=True)
class FedAdagrad(FedAdam):
    """Adagrad: v is the sum of all squares, and η stays the same."""

    beta_1: float = 0.0
    beta_2: float = 0.0

    @property
    def _decay(self) -> float:
        return 1.0

    @property
    def _gain(self) -> float:
        return 1.0

    def _rate(self, round_index: int) -> float:
        return self.eta


def _solved(
    d: NDArray[np.float64], *, m: ArrayLike, v: ArrayLike, a: float, b: float, tau: float
) -> NDArray[np.float64]:
    """The u with m + a u = d (√(v + b u²) + τ), entry by entry; NaN where two numbers or none do that."""
    c = np.asarray(m) - d * tau
    # Squared: (a² - d² b) u² + 2 a c u + c² - d² v = 0, and a u + c must have the sign of d.
    quadratic = a**2 - d**2 * b
    root = np.abs(d) * np.sqrt(np.maximum(b * c**2 + quadratic * np.asarray(v), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Two forms of the same solution: each is free of cancellation where it is used.
        same_sign = -np.sign(d) * (c**2 - d**2 * np.asarray(v)) / (a * np.abs(c) + root)
        other_sign = (np.sign(d) * root - a * c) / quadratic
    return np.where(quadratic > 0, np.where(c * d > 0, same_sign, other_sign), np.nan)


SERVERS: dict[str, type[FedAvg] | type[FedAvgM] | type[FedAdam]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedadagrad": FedAdagrad,
}
"""By the name that `--server` takes."""

SHARES = ("beta_1", "beta_2", "server_momentum")
"""Settings that say how much of the past a server keeps; the others are above 0."""


def server_named(text: str) -> Server:
    """`fedadam`, or with settings `fedadam,eta=0.01,tau=0.001`; a `UserError` names what is wrong."""
    name, *settings = (part.strip() for part in text.split(","))
    if name.lower() not in SERVERS:
        raise UserError(f"--server {text}: expected one of {', '.join(SERVERS)}")
    kind = SERVERS[name.lower()]
    known = [field.name for field in fields(kind)]
    values: dict[str, float] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = np.nan
        if key not in known or not np.isfinite(number):
            expected = ", ".join(f"{name}=NUMBER" for name in known) or "no settings"
            raise UserError(f"--server {text}: {setting!r}, expected {expected}")
        if key in SHARES and not 0 <= number < 1:
            raise UserError(f"--server {text}: {setting!r}, expected a number from 0 to below 1")
        if key not in SHARES and number <= 0:
            raise UserError(f"--server {text}: {setting!r}, expected a number above 0")
        values[key] = number
    return kind(**values)
