"""The tap: records anybody's strategy without changing what the strategy does."""

import contextlib
import csv
import json
import logging
import random
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg

from fedsim import Tap
from fedsim.core.errors import UserError
from fedsim.records import Transcript
from fedsim.tap import log
from tests.helpers.foreign_app import SHAPES, examples_of, flat, foreign_grid, initial_arrays

ROOT = Path(__file__).parents[2]
FIRST_NODE = 1000
CLIENTS = 8


def start(strategy, grid=None, rounds=6, arrays=None, seed=3):
    """Flower samples with the global generator."""
    random.seed(seed)
    return strategy.start(grid or foreign_grid(CLIENTS), arrays or initial_arrays(), num_rounds=rounds)


def participation(folder, rounds, clients=CLIENTS):
    P = np.zeros((rounds, clients))
    with (folder / "truth/participation.csv").open() as file:
        for row in csv.DictReader(file):
            P[int(row["round"]), int(row["client"]) - FIRST_NODE] = 1
    return P


def counts(folder):
    with (folder / "counts.csv").open() as file:
        return [tuple(map(int, row)) for row in list(csv.reader(file))[1:]]


UPDATES = np.array([flat(k) for k in range(CLIENTS)])
WEIGHTS = np.array([examples_of(k) for k in range(CLIENTS)], dtype=float)


def test_a_row_is_the_sum_of_the_updates(tmp_path):
    start(Tap(FedAvg(fraction_train=0.4), out=tmp_path / "log"))
    transcript, P = Transcript.load(tmp_path / "log/transcript"), participation(tmp_path / "log", 6)
    assert 0 < P.mean() < 1
    np.testing.assert_allclose(transcript.aggregates, P @ UPDATES, atol=1e-6)
    np.testing.assert_array_equal(transcript.cohort_sizes, P.sum(axis=1))
    np.testing.assert_array_equal(transcript.weights, P.sum(axis=1))
    assert transcript.layer_shapes == tuple(SHAPES.values())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_weighted_sums_and_means(tmp_path, dtype):
    for record in ("sum", "mean"):
        tap = Tap(
            FedAvg(fraction_train=0.4), out=tmp_path / record, record=record, weighted_by="num-examples"
        )
        start(tap, arrays=initial_arrays(dtype))
    P = participation(tmp_path / "sum", 6)
    sums, means = (Transcript.load(tmp_path / record / "transcript") for record in ("sum", "mean"))
    np.testing.assert_allclose(
        sums.aggregates, (P * WEIGHTS) @ UPDATES, atol=0.3 if dtype == "float16" else 1e-4
    )
    np.testing.assert_allclose(sums.weights, P @ WEIGHTS)
    np.testing.assert_allclose(
        means.aggregates * means.weights[:, None], sums.aggregates, rtol=1e-3, atol=1e-5
    )


def test_several_taps_record_the_same_training(tmp_path):
    start(Tap(Tap(FedAvg(fraction_train=0.4), out=tmp_path / "a"), out=tmp_path / "b", record="mean"))
    sums, means = (Transcript.load(tmp_path / name / "transcript") for name in "ab")
    np.testing.assert_allclose(means.aggregates * means.weights[:, None], sums.aggregates, atol=1e-5)


def test_models_are_those_of_the_strategy(tmp_path):
    tap = Tap(FedAvg(fraction_train=0.4), out=tmp_path / "log", record="model", weighted_by="num-examples")
    result = start(tap)
    transcript = Transcript.load(tmp_path / "log/transcript")
    final = np.concatenate([result.arrays[name].numpy().reshape(-1) for name in SHAPES])
    np.testing.assert_array_equal(transcript.aggregates[-1], final)
    before = np.load(tmp_path / "log/transcript/initial.npy")
    first = np.concatenate([initial_arrays()[name].numpy().reshape(-1) for name in SHAPES])
    np.testing.assert_array_equal(before, first)


def test_the_layout_is_written_down(tmp_path):
    start(Tap(FedAvg(), out=tmp_path / "log"), rounds=1)
    layout = json.loads((tmp_path / "log/tap.json").read_text())["layout"]
    assert [place["name"] for place in layout["places"]] == list(SHAPES)
    assert [place["name"] for place in layout["aside"]] == ["norm.running_mean", "norm.num_batches_tracked"]


@pytest.mark.parametrize(
    "strategy",
    [
        lambda: FedAvg(fraction_train=0.4, fraction_evaluate=0.5),
        lambda: FedAdam(fraction_train=0.4),
        lambda: DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_train=0.4), 0.0, 1e3, 3),
    ],
)
def test_results_are_the_strategys_own(tmp_path, strategy):
    arrays = ArrayRecord({name: initial_arrays()[name] for name in SHAPES})  # FedAdam takes floats only
    plain, tapped = (
        start(made, foreign_grid(CLIENTS, floats_only=True), arrays=arrays)
        for made in (strategy(), Tap(strategy(), out=tmp_path / "log"))
    )
    for name in SHAPES:
        np.testing.assert_array_equal(plain.arrays[name].numpy(), tapped.arrays[name].numpy())
    assert plain.train_metrics_clientapp == tapped.train_metrics_clientapp
    assert plain.evaluate_metrics_clientapp == tapped.evaluate_metrics_clientapp
    assert len(Transcript.load(tmp_path / "log/transcript").aggregates) == 6


class CustomFedAvg(FedAvg):
    """With a `start()` of its own, as in Flower's advanced example, and attributes that others set."""

    def set_save_path_and_run_dir(self, path, run_dir):
        self.save_path, self.run_dir = path, run_dir

    def start(self, grid, initial_arrays, num_rounds=3, flavour="plain"):  # type: ignore[override]
        self.flavour, self.best = flavour, 0.0
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, initial_arrays, ConfigRecord(), grid)
            _, metrics = self.aggregate_train(
                server_round=number, replies=iter(grid.send_and_receive(messages))
            )
            assert metrics is not None
            self.best = max(self.best, float(metrics["loss"]))  # type: ignore[arg-type]
        return self.best


def test_a_start_of_the_users_own_is_recorded(tmp_path):
    inner = CustomFedAvg(fraction_train=0.4)
    tap = Tap(inner, out=tmp_path / "log")
    tap.set_save_path_and_run_dir("here", "there")
    tap.note = "set on the tap"
    returned: object = tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=4, flavour="own")
    assert returned == inner.best
    assert vars(inner)["note"] == "set on the tap"
    assert (inner.flavour, inner.save_path, tap.fraction_train) == ("own", "here", 0.4)
    P = participation(tmp_path / "log", 4)
    np.testing.assert_allclose(
        Transcript.load(tmp_path / "log/transcript").aggregates, P @ UPDATES, atol=1e-6
    )
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = tap.no_such_thing


def test_counts_are_those_of_the_replies(tmp_path):
    start(Tap(FedAvg(fraction_train=0.3), out=tmp_path / "log", window=4), rounds=10)
    P = participation(tmp_path / "log", 10)
    table = counts(tmp_path / "log")
    for client, first, stop, count in table:
        assert count == P[first:stop, client - FIRST_NODE].sum()
    for client in np.flatnonzero(P.any(axis=0)):
        covered = sorted((a, b) for c, a, b, _ in table if c == client + FIRST_NODE)
        assert covered[0][0] == 0
        assert [a for a, _ in covered[1:]] == [b for _, b in covered[:-1]]
        assert covered[-1][1] == 10


def test_errors_and_misfits_are_left_out(tmp_path, caplog, monkeypatch):
    class Tolerant(FedAvg):
        def aggregate_train(self, server_round, replies):
            return None, None

    grid = foreign_grid(CLIENTS, failing={1}, wrong={3})
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    start(Tap(Tolerant(), out=tmp_path / "log"), grid, rounds=2)
    P = participation(tmp_path / "log", 2)
    np.testing.assert_array_equal(P[0], [1, 0, 1, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(
        Transcript.load(tmp_path / "log/transcript").aggregates, P @ UPDATES, atol=1e-6
    )
    assert "the reply of node 1003 is not recorded: the array 'layer.weight' has shape (2, 3)" in caplog.text


def test_errors_of_the_strategy_pass_through(tmp_path):
    class Strict(FedAvg):
        def aggregate_train(self, server_round, replies):
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        start(Tap(Strict(), out=tmp_path / "log"))


def test_updates_and_several_records(tmp_path):
    """Replies that are updates already, in two records, neither of which was sent."""
    tap = Tap(_Silent(), out=tmp_path / "log", replies="updates")
    replies = []
    for k, message in enumerate(
        tap.configure_train(1, initial_arrays(), ConfigRecord(), foreign_grid(CLIENTS))
    ):
        content: dict[str, Any] = {
            key: ArrayRecord({"a": Array(np.full(2, k + part, float))}) for part, key in enumerate("xy")
        }
        replies.append(Message(RecordDict(content), reply_to=message))
    assert tap.aggregate_train(1, replies) == (None, None)
    rows = np.load(tmp_path / "log/transcript/aggregates.npy")
    np.testing.assert_array_equal(rows, [[28, 28, 36, 36]])


class _Silent(FedAvg):
    def aggregate_train(self, server_round, replies):
        return None, None


def test_the_truth_is_private(tmp_path):
    start(Tap(FedAvg(fraction_train=0.4), out=tmp_path / "log", truth="updates"))
    for file in (tmp_path / "log/truth").rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600), file
    assert stat.S_IMODE((tmp_path / "log/state.json").stat().st_mode) == 0o600
    for client in np.flatnonzero(participation(tmp_path / "log", 6).any(axis=0)):
        with np.load(tmp_path / f"log/truth/updates/{client + FIRST_NODE}.npz") as kept:
            np.testing.assert_allclose(kept["mean"], UPDATES[client], atol=1e-6)
    start(Tap(FedAvg(), out=tmp_path / "bare", truth="none"), rounds=1)
    assert not (tmp_path / "bare/truth").exists()


def bytes_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("at", range(1, 25))
def test_a_killed_recording_continues(tmp_path, monkeypatch, at):
    """Killed before any of its writes, the recording ends up as if nobody had killed it."""
    start(Tap(_Silent(), out=tmp_path / "whole", window=2), rounds=4)
    writes = 0
    append, save = log.TapLog._append, log.TapLog._save_state

    def killing(original):
        def call(self, *args):
            nonlocal writes
            writes += 1
            if writes == at:
                raise KeyboardInterrupt
            original(self, *args)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(log.TapLog, "_append", killing(append))
        patched.setattr(log.TapLog, "_save_state", killing(save))
        with contextlib.suppress(KeyboardInterrupt):
            start(Tap(_Silent(), out=tmp_path / "log", window=2), rounds=4)
    assert writes >= at
    second = Tap(_Silent(), out=tmp_path / "log", window=2)
    start(second, rounds=4 - second._recorder.log.rounds)
    assert bytes_of(tmp_path / "log") == bytes_of(tmp_path / "whole")


SERVER = """
import sys
from flwr.serverapp.strategy import FedAvg
from fedsim import Tap
from tests.helpers.foreign_app import foreign_grid, initial_arrays

class Telling(FedAvg):
    def aggregate_evaluate(self, server_round, replies):
        print(server_round, flush=True)

tap = Tap(Telling(fraction_train=0.4), out=sys.argv[1], window=4)
tap.start(foreign_grid(8), initial_arrays(), num_rounds=int(sys.argv[2]))
"""


def test_a_killed_server_continues_its_recording(tmp_path):
    """Killed by the system at no particular moment, then started again."""
    command = [sys.executable, "-c", SERVER, str(tmp_path / "log")]
    with subprocess.Popen([*command, "100000"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        for _ in range(7):
            server.stdout.readline()
        server.kill()
    subprocess.run([*command, "5"], cwd=ROOT, check=True, capture_output=True)
    transcript = Transcript.load(tmp_path / "log/transcript")
    rounds = len(transcript.aggregates)
    assert rounds >= 12
    P = participation(tmp_path / "log", rounds)
    np.testing.assert_allclose(transcript.aggregates, P @ UPDATES, atol=1e-5)
    np.testing.assert_array_equal(transcript.cohort_sizes, P.sum(axis=1))
    for client, first, stop, count in counts(tmp_path / "log"):
        assert count == P[first:stop, client - FIRST_NODE].sum()


def test_what_is_refused(tmp_path):
    start(Tap(FedAvg(), out=tmp_path / "done"), rounds=1)
    with pytest.raises(UserError, match="holds a finished recording of 1 rounds"):
        Tap(FedAvg(), out=tmp_path / "done")
    half = Tap(CustomFedAvg(), out=tmp_path / "half")
    grid = foreign_grid(CLIENTS)
    half.aggregate_train(
        1, grid.send_and_receive(half.configure_train(1, initial_arrays(), ConfigRecord(), grid))
    )
    with pytest.raises(UserError, match="recorded with window=None, and this tap has window=3"):
        Tap(FedAvg(), out=tmp_path / "half", window=3)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        Tap(FedAvg(), out=tmp_path / "other")
    for wrong in (
        {"record": "total"},
        {"window": 0},
        {"truth": True},
        {"skip": "*norm*"},
        {"weighted_by": 3},
    ):
        with pytest.raises(UserError, match="expected"):
            Tap(FedAvg(), out=tmp_path / "new", **wrong)
    for no_strategy in (FedAvg, "fedavg", None):
        with pytest.raises(UserError, match=r"expected a strategy of Flower, such as FedAvg\(\)"):
            Tap(no_strategy, out=tmp_path / "new")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError, match="no metric 'size' to weight it by"):
        start(Tap(FedAvg(), out=tmp_path / "new", weighted_by="size"))
    with pytest.raises(UserError, match="cannot be written to"):
        Tap(FedAvg(), out="/proc/nowhere")


def test_an_app_may_have_packages_of_our_names(tmp_path):
    """An app's own `analytics`, `attacks` and `scenarios` do not matter, and torch is not needed."""
    for name in ("analytics", "attacks", "scenarios"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is the app own package')")
    program = (
        "import fedsim, sys; assert 'numpy' not in sys.modules; fedsim.Tap; fedsim.SecureAggregation; "
        "fedsim.secure_mod; fedsim.answer_secure_aggregation; assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
