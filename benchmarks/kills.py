"""What does kill -9 leave behind? Kills commands and their worker processes, and prints victims by outcome.

    python -m benchmarks.kills [--kills 60] [--seed 0]

Each trial starts a command in a folder of its own, kills one process of it at a random moment, and runs the
command that continues. A trial ends in one of these outcomes:

    continued   the command was killed, and the next one ended in the bytes of an undisturbed command
    reported    a worker was killed, the command said so in one line with exit status 3, and the next one
                ended in those bytes
    unharmed    a worker was killed that was not needed any more: the command itself ended in those bytes
    fault       anything else; it is printed

Seconds, and pages that show them, are not compared.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FEDSIM = (sys.executable, "-c", "from scenarios.cli import main; main()")
TIME_LIMIT_S = 600
"""A command that takes longer hangs. The limit is long, because other programs may keep the cores busy."""
CONTINUED, REPORTED, UNHARMED, FAULT = OUTCOMES = ("continued", "reported", "unharmed", "fault")

SCENARIO = """
title = "Kills"
seed = 5
[data]
name = "synthetic"
train_images = 300
test_images = 60
[model]
name = "mlp"
hidden = 8
[clients]
dataset_size = 16
batch_size = 4
local_epochs = 8
lr = 0.01
[federation]
clients = 10
rounds = 30
server_model = "updated"
participation = { name = "bernoulli", rate = 0.4 }
[analytics]
window = 6
[attack]
inference = [{ name = "label_inference" }]
"""
SWEEP = """
title = "Kills"
base = "scenario.toml"
figure = "disaggregation.exact_fraction"
[[vary]]
federation.rounds = [16]
attack.solver = ["projection", "highs"]
[[vary]]
federation.rounds = [24]
"""
EVALUATION = """
title = "Kills"
base = "scenario.toml"
seeds = 1
[[defences]]
name = "no counts"
set.analytics.collection = "off"
[[defences]]
name = "noise on updates"
set.defences = [{ name = "noise", sd = 0.003 }]
"""


@dataclass(frozen=True)
class Victim:
    """A process to kill: the command itself, or a worker that its command line tells apart."""

    name: str
    command: tuple[str, ...]
    worker: Callable[[str], bool] | None = None
    """Whether a command line is a possible victim's; None for the command itself."""
    again: tuple[str, ...] = ()
    """Options of the command that continues."""
    share: int = 4
    """How many of 60 kills are this victim's."""
    before: Path | None = None
    """A finished output to begin with."""


def victims(folder: Path) -> list[Victim]:
    run = ("run", "scenario.toml", "--out", "out", "--workers", "3")
    sweep = ("sweep", "sweep.toml", "--out", "out", "--workers", "2")
    evaluate = ("evaluate", "evaluation.toml", "--out", "out", "--workers", "2")
    audit = ("audit", "--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "out")
    attack = ("attack", "out")
    ray_run = ("run", "scenario.toml", "--out", "out", "--engine", "ray", "--set", "federation.rounds=20")
    ray_sweep = (*sweep[:-2], "--ray")

    def forked(line: str) -> bool:
        return "scenarios.cli" in line

    def attacking(line: str) -> bool:
        return "attacks.process" in line

    def spawned(line: str) -> bool:
        return "spawn_main" in line

    def actor(line: str) -> bool:
        return line.startswith("ray::") and "Agent" not in line  # agents are Ray's own

    finished = folder / "finished"
    return [
        Victim("run", run, again=("--resume",), share=10),
        Victim("run: a training worker", run, forked, again=("--resume",), share=8),
        Victim("run: the attack", run, attacking, again=("--resume",), share=5),
        Victim("attack", attack, before=finished),
        Victim("attack: its process", attack, attacking, before=finished, share=3),
        Victim("sweep", sweep, share=6),
        Victim("sweep: a worker", sweep, spawned, share=6),
        Victim("evaluate", evaluate),
        Victim("evaluate: a worker", evaluate, spawned),
        Victim("audit", audit),
        Victim("run on Ray: an actor", ray_run, actor, again=("--force",), share=3),
        Victim("sweep on Ray: a worker", ray_sweep, actor, share=3),
    ]


def make_inputs(folder: Path) -> None:
    (folder / "scenario.toml").write_text(SCENARIO)
    (folder / "sweep.toml").write_text(SWEEP)
    (folder / "evaluation.toml").write_text(EVALUATION)
    rng = np.random.default_rng(0)
    P = rng.random((80, 12)) < 0.3
    np.save(folder / "sums.npy", P @ rng.normal(size=(12, 3000)))
    rows = [(k, s, s + 8, P[s : s + 8, k].sum()) for k in range(12) for s in range(0, 80, 8)]
    text = "client,start,stop,count\n" + "".join(f"c{k},{a},{b},{n}\n" for k, a, b, n in rows)
    (folder / "counts.csv").write_text(text)


class Trial:
    """A command in a folder of its own."""

    def __init__(self, victim: Victim, inputs: Path) -> None:
        self.victim = victim
        self.folder = Path(tempfile.mkdtemp(prefix="fedsim-kills-"))
        for file in inputs.iterdir():
            if file.is_file():
                shutil.copy(file, self.folder)
        if victim.before is not None:
            shutil.copytree(victim.before, self.folder / "out")

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start the command, with more options."""
        return subprocess.Popen(
            [*FEDSIM, *self.victim.command, *more],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> tuple[int | str, str]:
        """The exit status, or "hang", and stderr."""
        try:
            _, stderr = process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return "hang", ""
        return process.returncode, stderr

    def content(self) -> dict[str, Any]:
        """What the command has written: every file, without seconds."""
        out = self.folder / "out"
        return {
            str(path.relative_to(out)): _without_seconds(path)
            for path in sorted(out.rglob("*"))
            if path.is_file()
        }

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder)


def _without_seconds(path: Path) -> Any:
    match path.suffix:
        case ".html" | ".svg" | ".png" | ".parquet":
            return "a page"
        case ".json":
            return _seconds_dropped(json.loads(path.read_text()))
        case ".csv":
            rows = csv.DictReader(io.StringIO(path.read_text()))
            return [
                _seconds_dropped(row) for row in rows if not any("seconds" in cell for cell in row.values())
            ]
        case _:
            return path.read_bytes()


def _seconds_dropped(value: Any) -> Any:
    """A value without the entries that are seconds, or digests of files with seconds in them."""
    if isinstance(value, dict):
        return {
            key: _seconds_dropped(entry)
            for key, entry in value.items()
            if "seconds" not in key and key not in ("result.json", "report.html")
        }
    return [_seconds_dropped(entry) for entry in value] if isinstance(value, list) else value


def descendants(process: int) -> Iterator[tuple[int, str]]:
    """Every process under this one, with its command line."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(folder.name))
    waiting = parents.get(process, [])[:]
    while waiting:
        child = waiting.pop()
        waiting += parents.get(child, [])
        with suppress(OSError):
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def living(victim: Victim, process: subprocess.Popen[str]) -> list[int]:
    """The processes that may be killed now."""
    if victim.worker is None:
        return [process.pid]
    return [pid for pid, line in descendants(process.pid) if victim.worker(line)]


def wait_for(victim: Victim, process: subprocess.Popen[str], *, alive: bool) -> float:
    """Wait until a victim lives, or none does, or the command has ended; returns the time."""
    while process.poll() is None and bool(living(victim, process)) is not alive:
        time.sleep(0.1)
    return time.monotonic()


def kill(victim: Victim, process: subprocess.Popen[str], after_s: float, rng: np.random.Generator) -> bool:
    """Kill a victim some time after the first one appears; False if none is left then."""
    wait_for(victim, process, alive=True)
    time.sleep(after_s)
    if process.poll() is None and (targets := living(victim, process)):
        with suppress(ProcessLookupError):
            os.kill(int(rng.choice(targets)), signal.SIGKILL)
            return True
    return False


def outcome(trial: Trial, process: subprocess.Popen[str], expected: dict[str, Any]) -> tuple[str, str]:
    """The outcome of a trial whose victim has been killed, and the line, or the reason if it is a fault."""
    status, stderr = trial.end(process)
    if trial.victim.worker is None:
        # A command that was killed after its last file has nothing left to do.
        fault = "" if trial.content() == expected else _fault_of_next(trial, expected)
        return (FAULT, fault) if fault else (CONTINUED, "")
    if status == 0:
        return (UNHARMED, "") if trial.content() == expected else (FAULT, "other bytes in spite of status 0")
    if status != 3 or stderr.count("\n") != 1 or not stderr.startswith("fedsim: "):
        return FAULT, f"status {status}: {stderr[-300:] or 'not a word'}"
    fault = _fault_of_next(trial, expected)
    return (FAULT, fault) if fault else (REPORTED, stderr.strip())


def _fault_of_next(trial: Trial, expected: dict[str, Any]) -> str:
    """Run the command that continues; what is wrong about its end, or nothing."""
    status, stderr = trial.end(trial.start(*trial.victim.again))
    if status != 0:
        return f"the next command ended with status {status}: {stderr.strip()[-300:]}"
    found = trial.content()
    other = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    return f"other bytes: {', '.join(sorted(other))}" if other else ""


def trials(victim: Victim, inputs: Path, number: int, rng: np.random.Generator) -> Counter[str]:
    undisturbed = Trial(victim, inputs)
    process = undisturbed.start()
    longest_s = -wait_for(victim, process, alive=True) + wait_for(victim, process, alive=False)
    status, stderr = undisturbed.end(process)
    assert status == 0, stderr
    expected = undisturbed.content()
    undisturbed.remove()
    found: Counter[str] = Counter()
    while found.total() < number:
        trial = Trial(victim, inputs)
        process = trial.start()
        if kill(victim, process, rng.uniform(0, longest_s), rng):
            result, line = outcome(trial, process, expected)
            found[result] += 1
            if line:
                print(f"  {victim.name}: {line}", flush=True)
        else:
            trial.end(process)
        trial.remove()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="victims whose name begins so")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="fedsim-kills-") as name:
        inputs = Path(name)
        make_inputs(inputs)
        subprocess.run(
            [*FEDSIM, "run", "scenario.toml", "--out", "finished"],
            cwd=inputs,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        print(f"| victim | {' | '.join(OUTCOMES)} |\n|---|{'---|' * len(OUTCOMES)}", flush=True)
        for number, victim in enumerate(victims(inputs)):
            if not victim.name.startswith(arguments.only):
                continue
            rng = np.random.default_rng([arguments.seed, number])
            found = trials(victim, inputs, round(arguments.kills * victim.share / 60), rng)
            total += found
            print(f"| {victim.name} | {' | '.join(str(found[one]) for one in OUTCOMES)} |", flush=True)
    print(f"| all | {' | '.join(str(total[one]) for one in OUTCOMES)} |")


if __name__ == "__main__":
    main()
