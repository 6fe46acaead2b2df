"""The judge of property inference: how well it tells clients with a property from those without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from fedsim.core.errors import UserError
from scenarios.run.inference.findings import COHORT, Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import COLOURS, TITLES, Judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attacks.inference.properties import PropertyInference
    from scenarios.run.world import World

_RESAMPLES = 1000


class PropertyJudge(Judge):
    """Area under the ROC curve over the clients, with its confidence interval, and how often it is right."""

    kind: ClassVar[Kind] = "property_inference"

    def cohort_candidates(self, world: World, attack: PropertyInference) -> NDArray[np.int64]:
        """The clients without the property: as in the paper, nobody else in the cohort has it."""
        has = who_has(world, attack)
        if has.all() or not has.any():
            raise UserError(
                f"attack.inference: {attack.name}: {'every' if has.all() else 'no'} client has "
                f"{attack.property!r} in its data: set data.partition to property, with this attribute"
            )
        return np.flatnonzero(~has)

    def truth(
        self, world: World, clients: NDArray[np.int64], attack: PropertyInference
    ) -> dict[str, NDArray[Any]]:
        """Whether each of the clients has the property."""
        return {"has": who_has(world, attack)[clients], "property": np.array(attack.property)}

    def score(self, findings: Findings) -> dict[str, Any]:
        """`auc` with `auc_low` and `auc_high` (95 %), and `right`: the part of clients that is guessed right.

        `chance` is the score of the best constant guess: for `right`, that everybody has it, or nobody.
        """
        has = findings.truth["has"]
        values: dict[str, dict[str, float | None]] = {"auc": {}, "auc_low": {}, "auc_high": {}, "right": {}}
        for column, guess, about in each_column(findings):
            mine = has[about]
            area = auc(guess, mine)
            low, high = auc_interval(guess, mine)
            for name, value in (("auc", area), ("auc_low", low), ("auc_high", high)):
                values[name][column] = value
            values["right"][column] = mean_of((guess >= 0.5) == mine)
        values["auc"]["chance"] = 0.5
        values["right"]["chance"] = float(max(has.mean(), 1 - has.mean()))
        return {key: value for name, each in values.items() for key, value in in_columns(name, each).items()}

    def draw(self, findings: Findings) -> Figure:
        """The guess about every client, and the AUC on sums by the size of their cohorts."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 3.4), layout="constrained")
        profile, fading = figure.subplots(1, 2, width_ratios=(1.6, 1))
        self._draw_profile(findings, profile)
        self._draw_fading(findings, fading)
        return figure

    def _draw_profile(self, findings: Findings, axes: Any) -> None:
        about, guess = findings.about("disaggregated"), findings.guesses["disaggregated"]
        has = findings.truth["has"][about]
        for mine, colour, label in ((has, "#1f3a5f", "has it"), (~has, "#d9d2c3", "does not")):
            axes.bar(
                findings.clients[about][mine], guess[mine], color=colour, label=f"truly {label}", width=0.9
            )
        axes.axhline(0.5, color="#555", lw=0.8)
        axes.set(
            xlabel="client",
            ylabel=f"guessed probability of {findings.truth['property']}",
            ylim=(0, 1),
            title="what the server writes into everybody's profile",
        )
        axes.legend(fontsize=8)

    def _draw_fading(self, findings: Findings, axes: Any) -> None:
        has = findings.truth["has"]
        sizes = sorted(int(c.removeprefix(COHORT)) for c in findings.guesses if c.startswith(COHORT))
        for column in ("oracle", "disaggregated"):
            area = auc(findings.guesses[column], has[findings.about(column)])
            if area is not None:
                axes.axhline(area, color=COLOURS[column], label=TITLES[column])
        if sizes:
            guesses = [findings.guesses[f"{COHORT}{size}"] for size in sizes]
            areas = np.array([auc(guess, has) for guess in guesses], dtype=np.float64)
            low, high = np.array([auc_interval(guess, has) for guess in guesses], dtype=np.float64).T
            axes.errorbar(
                sizes,
                areas,
                yerr=(areas - low, high - areas),
                color=COLOURS["aggregate"],
                marker="o",
                label="sum of a cohort of this size",
            )
            axes.set_xscale("log")
            axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.axhline(0.5, color="#555", ls=":", label="chance")
        axes.set(xlabel="clients in the sum", ylabel="AUC", ylim=(0, 1.03))
        axes.legend(fontsize=8, loc="lower left")


def who_has(world: World, attack: PropertyInference) -> NDArray[np.bool_]:
    """(clients,) whether a client has the property in at least half the share that the attack looks for."""
    attribute = world.data.train.attributes[attack.property]
    shares = np.array([attribute[mine].mean() for mine in world.owned])
    return np.asarray(shares >= attack.share / 2)


def auc(guess: NDArray[Any], has: NDArray[np.bool_]) -> float | None:
    """The probability that a client with the property gets a higher guess than one without."""
    from sklearn.metrics import roc_auc_score

    if has.all() or not has.any():
        return None
    return float(roc_auc_score(has, guess))


def auc_interval(guess: NDArray[Any], has: NDArray[np.bool_]) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of the AUC, from resampled clients; those with and without the property apart."""
    positive, negative = guess[has], guess[~has]
    if not len(positive) or not len(negative):
        return None, None
    # Ties count half; the area of a resample is a mean over the pairs that it draws.
    wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    rng = np.random.default_rng(0)
    areas = [
        wins[rng.integers(len(positive), size=len(positive))][
            :, rng.integers(len(negative), size=len(negative))
        ].mean()
        for _ in range(_RESAMPLES)
    ]
    low, high = np.quantile(areas, (0.025, 0.975))
    return float(low), float(high)
