"""Fuzzing of every kind of input: a file is damaged, a command reads it, and its ending is judged.

`templates` makes valid inputs once. A `Case` is one damage to one file of one kind of input. `try_case`
writes the input into an empty folder, runs the command in a forked process, and returns its `Ending`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

CPU_LIMIT_S = 60
"""Processor time of a command. The inputs are tiny: without damage, commands take some seconds."""
HANG_S = 300
"""A command that takes longer hangs. The limit is long, because other programs may keep the cores busy."""
MEMORY_LIMIT = 16 << 30
"""Bytes of address space for a command."""

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

Files = dict[str, bytes]


@dataclass(frozen=True)
class Kind:
    """A kind of input: its valid files, those that may be damaged, and the command that reads them."""

    name: str
    files: Files
    damaged: tuple[str, ...]
    command: tuple[str, ...]
    may_be_larger: bool = True
    """Whether larger numbers are harmless; those of a scenario may ask for days of training."""


@dataclass(frozen=True)
class Case:
    """One damage to one file of a kind of input."""

    kind: Kind
    file: str
    damage: Callable[[Path], None]
    sealed_again: bool
    """Whether the digests of a run are computed again, so that the damage is found later."""


@dataclass(frozen=True)
class Ending:
    """How a command ended. `fault` says what is wrong about it, and is empty if nothing is."""

    status: int | str
    stderr: str
    fault: str


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
        "sums.npy": _saved(np.save, sums),
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

    models = _models(rng)
    _record_taps(folder / "taps")
    taps = _content(folder / "taps")
    read_of_taps = tuple(name for name in taps if not name.endswith("state.json"))
    run = _content(finished.path.parent)
    on_view = tuple(name for name in run if re.search(r"transcript|counts|truth/[pu]", name))
    on_report = tuple(name for name in run if not re.search(r"transcript|report|counts", name))
    kinds = [
        Kind("scenario", scenario, ("scenario.toml",), ("run", "scenario.toml", "--out", "out"), False),
        Kind("counts", tables, ("counts.csv",), audit("sums.npy", "--counts", "counts.csv")),
        Kind("sums .npy", tables, ("sums.npy",), audit("sums.npy", "--counts", "counts.csv")),
        Kind(
            "sums .npz",
            {"sums.npz": _saved(np.savez_compressed, sums)},
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
            {"cifar10.npz": _saved(np.savez_compressed, **images)},
            ("cifar10.npz",),
            ("data", "check", "cifar10", "cifar10.npz"),
        ),
        Kind("pictures", pictures, tuple(pictures), ("data", "check", "folder", "pictures")),
        Kind(
            "checkpoint",
            scenario | _content(interrupted.path.parent),
            tuple(_content(interrupted.path.parent)),
            ("run", "scenario.toml", "--out", "run", "--resume"),
        ),
        Kind("run, attacked", run, on_view, ("attack", "run")),
        Kind("run, reported", run, on_report, ("report", "run")),
    ]
    with contextlib.suppress(ModuleNotFoundError):
        kinds.append(_parquet(sums, audit("sums.parquet", "--clients", "4")))
    return kinds


def _models(rng: np.random.Generator) -> Files:
    """Checkpoints in every format, one per round."""
    import torch

    models = [rng.normal(size=(3, 4)).astype(np.float32) for _ in range(8)]
    header = json.dumps({"weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}}).encode()
    tensors = io.BytesIO()
    torch.save({"weight": torch.from_numpy(models[2])}, tensors)
    return {
        "models/0.npz": _saved(np.savez, weight=models[0]),
        "models/1.safetensors": len(header).to_bytes(8, "little") + header + models[1].tobytes(),
        "models/2.pt": tensors.getvalue(),
    } | {f"models/{n}.npz": _saved(np.savez, weight=models[n]) for n in range(3, 8)}


def _record_taps(folder: Path) -> None:
    """What a tap writes that records sums, and one that records models."""
    from flwr.serverapp.strategy import FedAvg

    from fedsim import Tap
    from tests.helpers.foreign_app import foreign_grid, initial_arrays

    for rows in ("sum", "model"):
        tap = Tap(FedAvg(fraction_train=0.5), out=folder / rows, window=4, record=rows)
        random.seed(3)  # Flower samples with the global generator
        tap.start(foreign_grid(4), initial_arrays(), num_rounds=12)


def _parquet(sums: np.ndarray, command: tuple[str, ...]) -> Kind:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    table = pyarrow.table({"round": list(range(len(sums))), "sum": list(sums)})
    parquet.write_table(table, file)
    return Kind("sums .parquet", {"sums.parquet": file.getvalue()}, ("sums.parquet",), command)


def _images(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 256, (number, 32, 32, 3), dtype=np.uint8), np.arange(number) % 10


def _saved(save: Callable[..., None], *arrays: np.ndarray, **named: np.ndarray) -> bytes:
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def _content(folder: Path) -> Files:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Damages. Each is a function of a path, which holds the valid file.

SPECIAL_TOKENS = (
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e-300",
    "9" * 5000,
    "true",
    '"',
    "é",
    "\0",
    "=1",
    "[",
)
OTHER_ARRAYS: tuple[Callable[[], np.ndarray], ...] = (
    lambda: np.array(1.0),
    lambda: np.zeros(0),
    lambda: np.zeros((0, 30)),
    lambda: np.zeros((12, 0)),
    lambda: np.zeros((12, 30)),
    lambda: np.ones((12, 30), dtype=np.int64),
    lambda: np.full((12, 30), np.nan),
    lambda: np.full((12, 30), 1e300),
    lambda: np.full((12, 30), 1e-300),
    lambda: np.ones((12, 30), dtype=np.complex128),
    lambda: np.ones((12, 30), dtype=bool),
    lambda: np.full((12, 30), "x"),
    lambda: np.zeros((12, 30), dtype=[("a", "f8"), ("b", "i4")]),
    lambda: np.zeros((12, 30), dtype="M8[s]"),
    lambda: np.zeros((12, 30), dtype=np.float16),
    lambda: np.zeros((2, 3, 4)),
    lambda: np.ones((1, 1)),
)


def _bytes_changed(at: float, length: int, new: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        place = int(at * len(content))
        path.write_bytes(content[:place] + new + content[place + length :])

    return damage


def _cut(at: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(at * len(content))])

    return damage


def _repeated(at: float, length: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        place = int(at * len(content))
        path.write_bytes(content[: place + length] + content[place:])

    return damage


def _token_replaced(number: int, by: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        tokens = list(re.finditer(rb"[^\s,=\[\]{}:\"]+", content))
        if tokens:
            token = tokens[number % len(tokens)]
            content = content[: token.start()] + by.encode() + content[token.end() :]
        path.write_bytes(content)

    return damage


def _array_replaced(number: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        array = OTHER_ARRAYS[number]()
        if path.suffix == ".npz":
            with np.load(path) as file:
                arrays = dict(file)
            arrays[sorted(arrays)[number % len(arrays)]] = array
            np.savez(path, **arrays)
        else:
            np.save(path.open("wb"), array)

    return damage


def _member_described_otherwise(offset: int, value: int) -> Callable[[Path], None]:
    """Change a byte that says how the first member of an archive is stored."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            content[archive.start_dir + offset] = value
        path.write_bytes(content)

    return damage


def no_ordinary_file(how: str) -> Callable[[Path], None]:
    """Put something else in the place of a file: a folder, a pipe, a link, or nothing."""

    def damage(path: Path) -> None:
        path.unlink()
        match how:
            case "folder":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "endless":
                path.symlink_to("/dev/zero")
            case "loop":
                path.symlink_to(path.name)
            case "empty":
                path.touch()
            case "text":
                path.write_text("no such thing\n")

    return damage


PLACES = st.floats(0, 1, exclude_max=True)


def damages(kind: Kind, file: str) -> st.SearchStrategy[Callable[[Path], None]]:
    """All damages to a file of this kind."""
    inserted = st.binary(max_size=12)
    if not kind.may_be_larger:
        inserted = inserted.map(lambda new: re.sub(rb"[0-9eE]", b"", new))
    ways = [
        st.builds(_bytes_changed, PLACES, st.integers(0, 12), inserted),
        st.builds(_bytes_changed, PLACES, st.just(1), inserted),
        st.builds(_cut, PLACES),
        st.builds(
            no_ordinary_file,
            st.sampled_from(["gone", "folder", "pipe", "endless", "loop", "empty", "text"]),
        ),
    ]
    if kind.may_be_larger:
        ways.append(st.builds(_repeated, PLACES, st.integers(1, 40)))
    if Path(file).suffix in {".csv", ".json", ".toml", ".safetensors"}:
        ways += 3 * [st.builds(_token_replaced, st.integers(0, 200), st.sampled_from(SPECIAL_TOKENS))]
    if Path(file).suffix in {".npy", ".npz"}:
        ways += 2 * [st.builds(_array_replaced, st.integers(0, len(OTHER_ARRAYS) - 1))]
    if Path(file).suffix in {".npz", ".zip", ".pt"}:
        ways.append(st.builds(_member_described_otherwise, st.integers(8, 45), st.integers(0, 255)))
    return st.one_of(ways)


def cases(kind: Kind) -> st.SearchStrategy[Case]:
    """All cases of a kind of input."""
    return st.sampled_from(kind.damaged).flatmap(
        lambda file: st.builds(Case, st.just(kind), st.just(file), damages(kind, file), st.booleans())
    )


def try_case(case: Case) -> Ending:
    """Run the command of a case on its damaged input, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fedsim-fuzz-") as name:
        folder = Path(name)
        for file, content in case.kind.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        with contextlib.suppress(zipfile.BadZipFile):
            case.damage(folder / case.file)
        if case.sealed_again and case.kind.name.startswith("run"):
            _seal_again(folder / "run")
        before = _names(folder)
        status, stderr = _run(case.kind.command, folder)
        return Ending(status, stderr, _fault(status, stderr, sorted(_names(folder) - before)))


def _seal_again(run: Path) -> None:
    """Compute the digests of a run again, if its files can be read at all."""
    from fedsim.core.errors import UserError
    from scenarios.run.directory import RunDirectory

    if all(path.is_file() or path.is_dir() for path in run.rglob("*")):
        with contextlib.suppress(OSError, UserError), RunDirectory(run).sealed():
            pass


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _fault(status: int | str, stderr: str, new: list[str]) -> str:
    """What is wrong about an ending; empty if nothing is."""
    lines = stderr.splitlines()
    if status not in {0, 2, 3}:
        return f"status {status}: {lines[-1] if lines else 'not a word'}"
    if status != 0 and (len(lines) != 1 or not stderr.startswith("fedsim: ")):
        return f"{len(lines)} lines: {lines[-1] if lines else ''}"
    if status == 2 and new:
        return f"left {', '.join(new)} behind"
    if any(".fedsim-part" in name for name in new):
        return f"left a half-written file behind: {', '.join(new)}"
    return ""


def _run(command: tuple[str, ...], folder: Path) -> tuple[int | str, str]:
    """The exit status of a command, or a word if it has none, and what it wrote to stderr."""
    # Forked, so that imports are paid for once; torch runs one thread here, so forking is safe.
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            _be_the_command(command, folder, stderr.fileno())
        status = _waited_for(child)
        stderr.seek(0)
        return status, stderr.read().decode(errors="replace")


def _be_the_command(command: tuple[str, ...], folder: Path, stderr: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(stderr, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["fedsim", *command]
        from scenarios.cli import main

        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _waited_for(child: int) -> int | str:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            _kill_group(child)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else signal.Signals(-code).name
        time.sleep(0.005)
    _kill_group(child)
    os.waitpid(child, 0)
    return "hang"


def _kill_group(child: int) -> None:
    """End whatever processes the command has left."""
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
