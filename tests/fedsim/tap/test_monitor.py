"""The alarm of a tap: in time, with its consequences, and without a change to training and rows."""

import csv
import json
import logging
import random
import stat
import time

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from fedsim import ExposureMonitor, Tap
from fedsim.core.errors import UserError
from fedsim.records import Transcript
from fedsim.tap.exposure import attack, monitor
from tests.helpers.dying import Dying
from tests.helpers.foreign_app import foreign_grid, initial_arrays

CLIENTS = 8


def start(folder, rounds=30, seed=3, **settings):
    """A training whose clients always send the same update, so that sums are exact."""
    watching = ExposureMonitor(**{"every": 4, "attack": False, **settings})
    tap = Tap(FedAvg(fraction_train=0.4), out=folder, window=4, monitor=watching)
    random.seed(seed)
    return tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=rounds)


def lines(folder):
    return [json.loads(line) for line in (folder / "exposure.jsonl").read_text().splitlines()]


def first_alarm(folder):
    return next(line["round"] for line in lines(folder) if "alarm" in line)


def counts(folder):
    with (folder / "counts.csv").open() as file:
        return [tuple(map(int, row)) for row in list(csv.reader(file))[1:]]


@pytest.fixture
def warnings(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    foreign_grid(CLIENTS)  # sets the level
    monkeypatch.setattr(logging.getLogger("flwr"), "level", logging.WARNING)
    monkeypatch.setattr("tests.helpers.foreign_app.enter_local_task", lambda: None)
    logging.getLogger("flwr").manager._clear_cache()  # type: ignore[attr-defined]
    return caplog


def test_an_alarm_comes_before_there_are_more_rounds_than_clients(tmp_path, warnings):
    start(tmp_path / "log")
    forecasts = [line for line in lines(tmp_path / "log") if "expected" in line]
    assert first_alarm(tmp_path / "log") <= CLIENTS
    assert forecasts[-1]["expected"] == forecasts[-1]["clients"] == CLIENTS
    assert forecasts[-1]["rank"] == CLIENTS
    assert warnings.text.count("ALARM") == 1
    assert "Better attacks" in warnings.text
    assert "safe" not in warnings.text + json.dumps(lines(tmp_path / "log"))
    assert stat.S_IMODE((tmp_path / "log/exposure.jsonl").stat().st_mode) == 0o600


def test_watching_changes_neither_training_nor_recording(tmp_path):
    watched = start(tmp_path / "watched")
    random.seed(3)
    tap = Tap(FedAvg(fraction_train=0.4), out=tmp_path / "plain", window=4)
    plain = tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=30)
    for name, array in plain.arrays.items():
        np.testing.assert_array_equal(array.numpy(), watched.arrays[name].numpy())
    for name in ("transcript/aggregates.npy", "counts.csv", "state.json", "truth/participation.csv"):
        assert (tmp_path / "watched" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_an_alarm_needs_more_clients_than_the_limit(tmp_path):
    start(tmp_path / "log", limit=0.6)
    alarms = {line["round"] for line in lines(tmp_path / "log") if "alarm" in line}
    expected = {
        line["round"]: line["expected"] / line["clients"]
        for line in lines(tmp_path / "log")
        if "expected" in line
    }
    assert alarms == {number for number, share in expected.items() if share > 0.6}
    assert alarms < set(expected)


def test_stop_ends_the_training_with_the_model_so_far(tmp_path):
    evaluated = {}

    def evaluate_fn(server_round, arrays):
        evaluated[server_round] = MetricRecord({"round": server_round})
        return evaluated[server_round]

    tap = Tap(
        FedAvg(fraction_train=0.4),
        out=tmp_path / "log",
        record="model",
        window=4,
        monitor=ExposureMonitor(every=4, then="stop", attack=False),
    )
    random.seed(3)
    result = tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=30, evaluate_fn=evaluate_fn)
    rounds = first_alarm(tmp_path / "log")
    transcript = Transcript.load(tmp_path / "log/transcript")
    assert len(transcript.aggregates) == rounds < 30
    final = np.concatenate([result.arrays[n].numpy().reshape(-1) for n in ("layer.weight", "layer.bias")])
    np.testing.assert_array_equal(transcript.aggregates[-1], final)
    assert sorted(result.train_metrics_clientapp) == list(range(1, rounds + 1))
    assert sorted(result.evaluate_metrics_clientapp) == list(range(1, rounds + 1))
    assert result.evaluate_metrics_serverapp == evaluated
    # Nothing about the rounds since the last count, and the recording is complete.
    assert max(stop for _, _, stop, _ in counts(tmp_path / "log")) <= rounds
    assert json.loads((tmp_path / "log/state.json").read_text())["finished"]


def test_counts_about_to_give_somebody_away_stop_in_time(tmp_path):
    """Somebody takes part in all rounds of a window: its count would tell that."""

    class Always(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            return [m for m in messages if m.metadata.dst_node_id in (1000, 1000 + server_round)]

    tap = Tap(
        Always(),
        out=tmp_path / "log",
        window=3,
        monitor=ExposureMonitor(every=1, then="stop", attack=False),
    )
    tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=7)
    assert [line["alarm"] for line in lines(tmp_path / "log") if "alarm" in line] == ["counts"]
    assert counts(tmp_path / "log") == []


def test_coarser_counts_are_withheld_until_their_window_is_over(tmp_path):
    start(tmp_path / "fine", rounds=70)
    start(tmp_path / "coarse", rounds=70, then="coarsen", every=8)
    alarm = first_alarm(tmp_path / "coarse")
    fine, coarse = ({(a, b) for _, a, b, _ in counts(tmp_path / name)} for name in ("fine", "coarse"))
    windows = sorted((a, b) for a, b in coarse if b > alarm and (a, b) not in fine)
    assert [b - a for a, b in windows] == [8, 16, 32]
    assert max(b for _, b in coarse) == windows[-1][1] < 70
    P = np.zeros((70, CLIENTS))
    with (tmp_path / "coarse/truth/participation.csv").open() as file:
        for row in csv.DictReader(file):
            P[int(row["round"]), int(row["client"]) - 1000] = 1
    for client, first, stop, count in counts(tmp_path / "coarse"):
        assert count == P[first:stop, client - 1000].sum()


@pytest.mark.parametrize("truth", ["participation", "none"])
def test_a_restarted_server_goes_on_watching(tmp_path, warnings, truth):
    settings = {"out": tmp_path / "log", "window": 4, "truth": truth}
    watching = ExposureMonitor(every=4, then="coarsen", attack=False)
    random.seed(3)
    with pytest.raises(KeyboardInterrupt):
        Tap(Dying(20, fraction_train=0.4), **settings, monitor=watching).start(
            foreign_grid(CLIENTS), initial_arrays(), num_rounds=30
        )
    before = json.loads((tmp_path / "log/state.json").read_text())
    assert before["counts"]["length"] > 4
    tap = Tap(FedAvg(fraction_train=0.4), **settings, monitor=watching)
    assert ("does not know who took part in the 20 rounds" in warnings.text) == (truth == "none")
    tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=10)
    found = [line for line in lines(tmp_path / "log") if "expected" in line]
    assert found[-1]["round"] == 28
    assert found[-1]["clients"] == CLIENTS
    assert (
        json.loads((tmp_path / "log/state.json").read_text())["counts"]["length"]
        >= before["counts"]["length"]
    )


def test_a_restarted_simulation_with_new_node_ids_is_named(tmp_path, warnings, monkeypatch):
    settings = {"out": tmp_path / "log", "window": 4}
    with pytest.raises(KeyboardInterrupt):
        Tap(Dying(3), **settings).start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=6)
    assert "before the restart" not in warnings.text
    monkeypatch.setattr("fedsim.grids.inline._FIRST_NODE_ID", 5000)
    Tap(FedAvg(), **settings).start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=2)
    assert warnings.text.count("none of the 8 nodes of this round took part before the restart") == 1


class Scripted:
    """In place of the attack's process: finds somebody at once."""

    def __init__(self, folder):
        self.started = 0

    def start(self):
        self.started += 1

    def result(self):
        return attack.Found(12, 3, 2.5, 2, "exposed") if self.started == 1 else None

    def end(self):
        pass


def test_what_the_attack_finds_raises_an_alarm(tmp_path, monkeypatch, warnings):
    monkeypatch.setattr(monitor, "AttackProcess", Scripted)
    start(tmp_path / "log", attack=True)
    assert (
        "after 12 rounds our attack separates 3 clients, and 2 of these findings are right" in warnings.text
    )
    assert any(line.get("attack", {}).get("right") == 2 for line in lines(tmp_path / "log"))


def test_the_attack_runs_in_its_own_process(tmp_path):
    """As the monitor starts it, on a recording with two unknowns too few: everybody is found."""
    start(tmp_path / "log", rounds=40)
    process = attack.AttackProcess(tmp_path / "log")
    process.start()
    assert process._process is not None
    process._process.wait()
    found = process.result()
    assert isinstance(found, attack.Found)
    assert (found.rounds, found.separated, found.right) == (40, CLIENTS, CLIENTS)
    assert found.verdict == "exposed"
    # Attacks took more than a tenth of the time: the next one has to wait.
    process._created = time.monotonic()
    process.start()
    assert process._process is None
    assert process.result() is None


def test_an_attack_that_cannot_run_is_named_and_ends(tmp_path):
    process = attack.AttackProcess(tmp_path / "nothing")
    process.start()
    assert process._process is not None
    process._process.wait()
    assert "there is no recording of a tap in it" in str(process.result())
    process._spent = 0.0
    process.start()
    child = process._process
    process.end()
    assert child.returncode is not None


def test_what_is_refused(tmp_path):
    for wrong in (
        {"every": 0},
        {"every": 2.5},
        {"limit": 1.0},
        {"limit": -0.1},
        {"then": "pause"},
        {"attack": 1},
    ):
        with pytest.raises(UserError, match="expected"):
            ExposureMonitor(**wrong)
    with pytest.raises(UserError, match="expected an ExposureMonitor"):
        Tap(FedAvg(), out=tmp_path / "log", monitor="warn")  # type: ignore[arg-type]


def test_a_start_of_the_users_own_is_stopped_too(tmp_path):
    class Own(FedAvg):
        def start(self, grid, initial_arrays, num_rounds=3):  # type: ignore[override]
            for number in range(1, num_rounds + 1):
                messages = self.configure_train(number, initial_arrays, ConfigRecord(), grid)
                self.aggregate_train(number, grid.send_and_receive(messages))
            return "all rounds"

    tap = Tap(
        Own(fraction_train=0.4),
        out=tmp_path / "log",
        window=4,
        monitor=ExposureMonitor(every=4, then="stop", attack=False),
    )
    result = tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=30)
    assert len(result.train_metrics_clientapp) == first_alarm(tmp_path / "log")
