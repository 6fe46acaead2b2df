"""Every kind of input, valid."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np

from tests.helpers.fuzzing.kind import Files, Kind, content_of, saved
from tests.helpers.fuzzing.stored import models_of_rounds, participation_kinds, record_taps

SCENARIO = """
title = "Fuzz"
seed = 3
[data]
name = "synthetic"
train_images = 40
test_images = 10
[model]
name = "mlp"
hidden = 2
[clients]
dataset_size = 4
batch_size = 4
lr = 0.01
[federation]
clients = 3
rounds = 4
participation = { name = "bernoulli", rate = 0.5 }
[analytics]
window = 2
release = [{ name = "rounding", multiple = 2 }]
[[defences]]
name = "clipping"
norm = 1.0
[attack]
solver = "projection"
"""


def templates() -> list[Kind]:
    """Every kind of input, valid."""
    folder = Path(tempfile.mkdtemp(prefix="fedsim-fuzz-"))
    try:
        return _kinds(folder)
    finally:
        shutil.rmtree(folder)


def _kinds(folder: Path) -> list[Kind]:
    from PIL import Image

    from scenarios.run.directory import RunDirectory
    from scenarios.run.engines import Inline
    from scenarios.run.runner import run_scenario, train_rounds
    from scenarios.run.scenario import load_scenario
    from scenarios.run.world import World

    scenario = {"scenario.toml": SCENARIO.encode()}
    (folder / "scenario.toml").write_text(SCENARIO)
    world = World.prepare(load_scenario(folder / "scenario.toml"))
    engine = Inline(workers=1)
    finished, interrupted = (RunDirectory.create(folder / name / "run", replace=False) for name in ("a", "b"))
    with finished.sealed():
        run_scenario(world, finished, engine=engine)
    train_rounds(world, interrupted, 2, engine=engine)

    rng = np.random.default_rng(0)
    P = rng.random((12, 4)) < 0.5
    sums = P @ rng.normal(size=(4, 30))
    counts = "client,start,stop,count\n" + "".join(
        f"c{k},{start},{start + 4},{P[start : start + 4, k].sum()}\n" for k in range(4) for start in (0, 4, 8)
    )
    tables: Files = {
        "sums.npy": saved(np.save, sums),
        "counts.csv": counts.encode(),
        "rounds.csv": ("round,cohort_size\n" + "".join(f"{r},{P[r].sum()}\n" for r in range(12))).encode(),
        "layers.json": b'{"shapes": [[3, 8], [6]]}',
    }
    images = {f"train_{x}": v for x, v in zip("xy", _images(rng, 20), strict=True)}
    images |= {f"test_{x}": v for x, v in zip("xy", _images(rng, 5), strict=True)}
    picture = io.BytesIO()
    Image.fromarray(images["train_x"][0]).save(picture, "png")
    pictures = {f"pictures/{name}/{n}.png": picture.getvalue() for name in "ab" for n in range(2)}

    def audit(aggregates: str, *more: str) -> tuple[str, ...]:
        return ("audit", "--aggregates", aggregates, *more, "--no-alternatives", "--out", "out")

    models = models_of_rounds(rng)
    record_taps(folder / "taps")
    taps = content_of(folder / "taps")
    read_of_taps = tuple(name for name in taps if not name.endswith("state.json"))
    run = content_of(finished.path.parent)
    on_view = tuple(name for name in run if re.search(r"transcript|counts|truth/[pu]", name))
    on_report = tuple(name for name in run if not re.search(r"transcript|report|counts", name))
    kinds = [
        Kind("scenario", scenario, ("scenario.toml",), ("run", "scenario.toml", "--out", "out"), False),
        Kind("counts", tables, ("counts.csv",), audit("sums.npy", "--counts", "counts.csv")),
        Kind("sums .npy", tables, ("sums.npy",), audit("sums.npy", "--counts", "counts.csv")),
        Kind(
            "sums .npz",
            {"sums.npz": saved(np.savez_compressed, sums)},
            ("sums.npz",),
            audit("sums.npz", "--clients", "4"),
        ),
        Kind(
            "tables",
            tables,
            ("rounds.csv", "layers.json"),
            audit("sums.npy", "--cohort-sizes", "rounds.csv", "--layers", "layers.json", "--clients", "4"),
        ),
        Kind(
            "models",
            models,
            ("models/0.npz", "models/1.safetensors", "models/2.pt"),
            ("audit", "--models", "models", "--clients", "4", "--no-alternatives", "--out", "out"),
        ),
        *participation_kinds(folder, tables, P, audit("sums.npy", "--cohort-sizes", "rounds.csv")),
        *(
            Kind(
                f"tap of {rows}s",
                {name: content for name, content in taps.items() if name.startswith(rows)},
                tuple(name for name in read_of_taps if name.startswith(rows)),
                ("audit", rows, "--no-alternatives", "--out", "out"),
            )
            for rows in ("sum", "model")
        ),
        Kind(
            "data set",
            {"cifar10.npz": saved(np.savez_compressed, **images)},
            ("cifar10.npz",),
            ("data", "check", "cifar10", "cifar10.npz"),
        ),
        Kind("pictures", pictures, tuple(pictures), ("data", "check", "folder", "pictures")),
        Kind(
            "checkpoint",
            scenario | content_of(interrupted.path.parent),
            tuple(content_of(interrupted.path.parent)),
            ("run", "scenario.toml", "--out", "run", "--resume"),
        ),
        Kind("run, attacked", run, on_view, ("attack", "run")),
        Kind("run, reported", run, on_report, ("report", "run")),
    ]
    with contextlib.suppress(ModuleNotFoundError):
        kinds.append(_parquet(sums, audit("sums.parquet", "--clients", "4")))
    return kinds


def _parquet(sums: np.ndarray, command: tuple[str, ...]) -> Kind:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    table = pyarrow.table({"round": list(range(len(sums))), "sum": list(sums)})
    parquet.write_table(table, file)
    return Kind("sums .parquet", {"sums.parquet": file.getvalue()}, ("sums.parquet",), command)


def _images(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 256, (number, 32, 32, 3), dtype=np.uint8), np.arange(number) % 10
