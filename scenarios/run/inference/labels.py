"""The judge of label inference: how near guessed label histograms are to the true ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attacks.inference.attack import Kind
from scenarios.run.inference.findings import Findings, each_column, in_columns, mean_of
from scenarios.run.inference.judge import COLOURS, TITLES, Judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scenarios.run.world import World


def label_histograms(world: World, clients: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, classes) the shares of the classes among each client's examples."""
    labels = [world.data.train.targets[world.owned[int(k)]] for k in clients]
    counts = np.stack([np.bincount(mine, minlength=world.data.task.outputs) for mine in labels])
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


class LabelJudge(Judge):
    """Total variation distance: 0 for the same histogram, 1 for one without overlap."""

    kind: ClassVar[Kind] = "label_inference"

    def truth(self, world: World, clients: NDArray[np.int64], attack: Any) -> dict[str, NDArray[Any]]:
        """Each client's histogram, and `prior`, that of everybody's examples together."""
        everybody = np.concatenate(world.owned)
        prior = np.bincount(world.data.train.targets[everybody], minlength=world.data.task.outputs)
        return {"shares": label_histograms(world, clients), "prior": prior / prior.sum()}

    def score(self, findings: Findings) -> dict[str, Any]:
        """`tv`, mean over clients; `prior` is the distance of a guess that is the same for everybody."""
        distances = {column: mean_of(each) for column, each in self._distances(findings).items()}
        return in_columns("tv", distances)

    def draw(self, findings: Findings) -> Figure:
        """Per client, the distance in every column."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 2.8), layout="constrained")
        axes = figure.subplots()
        distances = self._distances(findings)
        for offset, (column, colour) in zip((-0.27, 0, 0.27), COLOURS.items(), strict=True):
            axes.bar(
                findings.about(column) + offset, distances[column], 0.27, color=colour, label=TITLES[column]
            )
        axes.axhline(distances["prior"].mean(), color="#555", ls="--", label="prior: the same for everybody")
        axes.set(xlabel="client", ylabel="total variation", ylim=(0, None))
        axes.set_xticks(np.arange(len(findings.clients)), [str(k) for k in findings.clients], fontsize=7)
        axes.legend(fontsize=8)
        return figure

    def _distances(self, findings: Findings) -> dict[str, NDArray[np.float64]]:
        truth, prior = findings.truth["shares"], findings.truth["prior"]
        found = {column: _distance(guess, truth[about]) for column, guess, about in each_column(findings)}
        return {**found, "prior": _distance(prior, truth)}


def _distance(guess: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(np.abs(guess - truth).sum(axis=-1) / 2, dtype=np.float64)
