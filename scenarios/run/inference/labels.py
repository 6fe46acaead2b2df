"""The judge of label inference: how near guessed label histograms are to the true ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from scenarios.charts import chart, coloured, layer, line_at, name, number, told
from scenarios.pages import shown
from scenarios.run.inference.findings import Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import COLOURS, TITLES, Judge

if TYPE_CHECKING:
    from markupsafe import Markup

    from scenarios.run.world import World


def label_histograms(world: World, clients: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, classes) the shares of the classes among each client's examples."""
    labels = [world.data.train.targets[world.owned[int(k)]] for k in clients]
    counts = np.stack([np.bincount(mine, minlength=world.data.task.outputs) for mine in labels])
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


class LabelJudge(Judge):
    """Total variation distance: 0 for the same histogram, 1 for one without overlap."""

    kind: ClassVar[Kind] = "label_inference"
    meaning: ClassVar[str] = (
        "tv is the total variation distance between the guessed and the true shares of the classes in a "
        "client's data: 0 is the same, 1 has no overlap. Prior: everybody's shares as the guess."
    )

    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """Each client's histogram, and `prior`, that of everybody's examples together."""
        everybody = np.concatenate(world.owned)
        prior = np.bincount(world.data.train.targets[everybody], minlength=world.data.task.outputs)
        return {"shares": label_histograms(world, clients), "prior": prior / prior.sum()}

    def score(self, findings: Findings) -> dict[str, Any]:
        """`tv`, mean over clients; `prior` is the distance of a guess that is the same for everybody."""
        distances = {column: mean_of(each) for column, each in self._distances(findings).items()}
        return in_columns("tv", distances)

    def show(self, findings: Findings) -> Markup:
        """Per client, the distance in every column."""
        distances = self._distances(findings)
        rows = [
            {"client": int(findings.clients[k]), "column": TITLES[column], "distance": round(float(x), 4)}
            for column in COLOURS
            for k, x in zip(findings.about(column), distances[column], strict=True)
        ]
        same = "prior: the same for everybody"
        colours = {TITLES[column]: colour for column, colour in COLOURS.items()} | {same: "var(--muted)"}
        bars = layer(
            rows,
            "bar",
            x={"field": "client", "type": "ordinal", "title": "client", "axis": {"labelAngle": 0}},
            xOffset=name("column"),
            y=number("distance", "total variation"),
            color=coloured("column", colours),
            tooltip=told(client="client", column="from", distance="distance"),
        )
        prior = line_at(float(distances["prior"].mean()), same, colours)
        return shown(chart(bars, prior), "Distance of guessed and true label histograms, per client")

    def _distances(self, findings: Findings) -> dict[str, NDArray[np.float64]]:
        truth, prior = findings.truth["shares"], findings.truth["prior"]
        found = {column: _distance(guess, truth[about]) for column, guess, about in each_column(findings)}
        return {**found, "prior": _distance(prior, truth)}


def _distance(guess: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(np.abs(guess - truth).sum(axis=-1) / 2, dtype=np.float64)
