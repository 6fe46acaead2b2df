"""Accuracy reached against clients exposed: the table and the picture of docs/realism.md.

    fedsim sweep benchmarks/realism.toml --set data.path=FOLDER_OR_NPZ --out runs/realism --workers 1
    python -m benchmarks.realism runs/realism --out docs/realism

The sweep can be stopped and continued. This reads the points that are done, writes them to a table (.csv) and
a picture (.svg), and prints the table as Markdown.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from fedsim.data.partition import Dirichlet, Iid
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import read_result
from scenarios.run.scenario import load_scenario


@dataclass(frozen=True, order=True)
class Point:
    """One federation: its settings, the accuracy that it reaches, and what guess, attack and ceiling find.

    `exposed` are columns without any error, of clients that are not unresolved.
    """

    rounds: int
    epochs: int
    data: str
    lr: float
    seed: int
    accuracy: float
    guess: float
    ones_found: float
    ones_ceiling: float | None
    exposed: float
    exposed_ceiling: float | None
    cpu_s: float

    @classmethod
    def read(cls, folder: Path) -> Self:
        """A finished point of the sweep."""
        directory = RunDirectory(folder)
        scenario, result = load_scenario(directory.scenario), read_result(directory)
        found = result.disaggregation
        best = found.ceiling
        assert found.ones_found is not None
        assert found.baselines.counts_only_ones_found is not None
        return cls(
            rounds=scenario.federation.rounds,
            epochs=scenario.clients.local_epochs,
            data=_name(scenario.data.partition),
            lr=scenario.clients.lr,
            seed=scenario.seed,
            accuracy=result.training.test_accuracy,
            guess=found.baselines.counts_only_ones_found,
            ones_found=found.ones_found,
            ones_ceiling=best.ones_found if best else None,
            exposed=found.singled_out_fraction,
            exposed_ceiling=best.singled_out_fraction if best else None,
            cpu_s=found.cpu_seconds or 0.0,
        )


def _name(partition: object) -> str:
    if isinstance(partition, Dirichlet):
        return f"Dirichlet {partition.alpha:g}"
    assert isinstance(partition, Iid)
    return "IID"


def finished(sweep: Path) -> list[Point]:
    """The points of a sweep that are done, in the order of the table."""
    return sorted(Point.read(file.parent) for file in (sweep / "points").glob("*/result.json"))


def write(points: Iterable[Point], table: Path) -> None:
    """The points as a table."""
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)], lineterminator="\n")
        writer.writeheader()
        for point in points:
            row = asdict(point).items()
            writer.writerow({k: round(v, 4) if isinstance(v, float) else v for k, v in row})


def markdown(points: Iterable[Point]) -> str:
    """The table of the page."""
    lines = [
        "| rounds | epochs | data | learning rate | accuracy | participations found: guess, attack, ceiling "
        "| clients exposed: attack, ceiling |",
        "|---|---|---|---|---|---|---|",
    ]
    for p in points:
        found = f"{_share(p.guess)}, {_share(p.ones_found)}, {_share(p.ones_ceiling)}"
        exposed = f"{_share(p.exposed)}, {_share(p.exposed_ceiling)}"
        settings = f"{p.rounds} | {p.epochs} | {p.data} | {p.lr:g}"
        lines.append(f"| {settings} | {_share(p.accuracy)} | {found} | {exposed} |")
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".removeprefix("0")


def draw(points: Sequence[Point], picture: Path) -> None:
    """Clients exposed over the accuracy reached: a panel for each kind of data and number of epochs."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams |= {"svg.hashsalt": "fedsim", "svg.fonttype": "none"}  # the same points give the same bytes
    kinds, epochs = sorted({p.data for p in points}, reverse=True), sorted({p.epochs for p in points})
    figure = Figure(figsize=(3.8 * len(epochs), 2.9 * len(kinds)), layout="constrained")
    panels = figure.subplots(len(kinds), len(epochs), sharex=True, sharey=True, squeeze=False)
    colours = dict(zip(sorted({p.rounds for p in points}), ("#1b6ca8", "#c8553d", "#4f7942"), strict=False))
    for panel, (kind, number) in zip(panels.flat, itertools.product(kinds, epochs), strict=True):
        panel.set(title=f"{kind}, {number} epoch{'s' * (number > 1)}", ylim=(-0.05, 1.05), xlim=(0.05, 0.5))
        panel.grid(alpha=0.3)
        for rounds, colour in colours.items():
            mine = sorted(
                (p for p in points if (p.data, p.epochs, p.rounds) == (kind, number, rounds)),
                key=lambda p: p.lr,
            )
            x = [p.accuracy for p in mine]
            panel.plot(x, [p.exposed for p in mine], "o-", color=colour, label=f"attack, {rounds} rounds")
            ceiling = [float("nan") if p.exposed_ceiling is None else p.exposed_ceiling for p in mine]
            panel.plot(x, ceiling, "^:", mfc="none", color=colour, label=f"ceiling, {rounds} rounds")
            for p in mine:
                panel.annotate(f"{p.lr:g}", (p.accuracy, p.exposed), (0, -13), textcoords="offset points",
                               ha="center", fontsize=7)  # fmt: skip
    figure.supxlabel("test accuracy reached (small numbers: learning rate)")
    figure.supylabel("share of the clients exposed")
    lines, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=3, fontsize=8)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path, help="folder of the sweep")
    parser.add_argument("--out", type=Path, required=True, help="table and picture, without their endings")
    options = parser.parse_args()
    points = finished(options.sweep)
    write(points, options.out.with_suffix(".csv"))
    draw(points, options.out.with_suffix(".svg"))
    print(markdown(points))


if __name__ == "__main__":
    main()
