"""The judge of property inference: how well it tells clients with a property from those without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from fedsim.core.errors import UserError
from scenarios.charts import GUESS, INK, Spec, chart, coloured, layer, line_at, number, told
from scenarios.pages import shown
from scenarios.run.inference.findings import COHORT, Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import COLOURS, TITLES, Judge

if TYPE_CHECKING:
    from attacks.inference.properties import PropertyInference
    from scenarios.run.world import World

_RESAMPLES = 1000


class PropertyJudge(Judge):
    """Area under the ROC curve over the clients, with its confidence interval, and how often it is right."""

    kind: ClassVar[Kind] = "property_inference"
    meaning: ClassVar[str] = (
        "AUC is the chance that a client with the property gets the higher guess (a coin: 0.5). "
        "Right: the share of clients whose property is guessed right."
    )

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

    def show(self, findings: Findings) -> Markup:
        """The guess about every client, and the AUC on sums by the size of their cohorts."""
        profile = shown(self._profile(findings), "The server's guess about every client")
        fading = shown(self.fading(findings), "AUC over the number of clients in a sum")
        return Markup("<p>What the server writes into everybody's profile:</p>{}").format(profile) + fading

    def _profile(self, findings: Findings) -> Spec:
        about, guess = findings.about("disaggregated"), findings.guesses["disaggregated"]
        rows = [
            {
                "client": int(findings.clients[k]),
                "truth": "truly has it" if findings.truth["has"][k] else "truly does not",
                "guess": round(float(x), 4),
            }
            for k, x in zip(about, guess, strict=True)
        ]
        bars = layer(
            rows,
            "bar",
            x={"field": "client", "type": "ordinal", "title": "client", "axis": {"labelOverlap": True}},
            y=number(
                "guess", f"guessed probability of {findings.truth['property']}", scale={"domain": [0, 1]}
            ),
            color=coloured("truth", {"truly has it": INK, "truly does not": GUESS}),
            tooltip=told(client="client", truth="truth", guess="guess"),
        )
        return chart(bars, layer([{}], "rule", y={"datum": 0.5}))

    def fading(self, findings: Findings) -> Spec:
        """The AUC on sums by the size of their cohorts, beside that on single updates."""
        has = findings.truth["has"]
        sizes = sorted(int(c.removeprefix(COHORT)) for c in findings.guesses if c.startswith(COHORT))
        sums = "sum of a cohort of this size"
        colours = {TITLES[c]: COLOURS[c] for c in ("oracle", "disaggregated")}
        colours |= {sums: COLOURS["aggregate"], "chance": "var(--muted)"}
        layers = []
        for column in ("oracle", "disaggregated"):
            area = auc(findings.guesses[column], has[findings.about(column)])
            if area is not None:
                layers.append(line_at(area, TITLES[column], colours))
        layers.append(line_at(0.5, "chance", colours))
        rows = []
        for size in sizes:
            guess = findings.guesses[f"{COHORT}{size}"]
            low, high = auc_interval(guess, has)
            rows.append({"size": size, "auc": auc(guess, has), "low": low, "high": high, "label": sums})
        across = {
            "field": "size",
            "type": "ordinal",
            "title": "clients in the sum",
            "axis": {"labelAngle": 0},
        }
        height = number("auc", "AUC", scale={"domain": [0, 1]})
        said = told(size="clients", auc="AUC", low="95 % from", high="to")
        colour = coloured("label", colours)
        layers.append(
            layer(rows, {"type": "line", "point": True}, x=across, y=height, color=colour, tooltip=said)
        )
        layers.append(layer(rows, "rule", x=across, y=number("low", "AUC"), y2="high", color=colour))
        return chart(*layers)


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
