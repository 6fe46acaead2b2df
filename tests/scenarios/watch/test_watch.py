"""`fedsim watch`: looks at running and finished recordings."""

import json
import random

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedsim import ExposureMonitor, Tap
from fedsim.tap import log
from tests.helpers.dying import Dying
from tests.helpers.foreign_app import foreign_grid, initial_arrays

CLIENTS = 8


def record(folder, rounds=40, *, strategy=None, **settings):
    random.seed(3)
    tap = Tap(strategy or FedAvg(fraction_train=0.4), out=folder, window=4, **settings)
    tap.start(foreign_grid(CLIENTS), initial_arrays(), num_rounds=rounds)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording") / "log"
    record(folder, monitor=ExposureMonitor(every=4, attack=False))
    return folder


def test_a_finished_recording(fedsim, finished):
    done = fedsim("watch", finished, "--json")
    assert (done.status, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["round"], found["clients"], found["finished"]) == (40, CLIENTS, True)
    assert found["attack"]["right"] == CLIENTS
    assert found["monitored"]
    assert found["forecast"]["expected"] == CLIENTS
    assert found["exposed"]
    assert found["alarms"][0]["round"] <= CLIENTS
    assert "Better attacks" in found["forecast"]["rests_on"]


def test_words_for_people(fedsim, finished):
    done = fedsim("watch", finished, "--once")
    assert "told apart by attack 8 after 40 rounds (8 right), exposed" in done.stdout
    assert "by forecast 8 by round 44" in done.stdout
    assert "Nobody told apart is no proof" in done.stdout
    assert "safe" not in done.stdout


def test_without_monitor_and_without_truth(fedsim, tmp_path):
    record(tmp_path / "plain", 30)
    record(tmp_path / "bare", 30, truth="none")
    plain, bare = (json.loads(fedsim("watch", tmp_path / n, "--json").stdout) for n in ("plain", "bare"))
    assert not plain["monitored"]
    assert plain["forecast"]["expected"] == CLIENTS
    assert "taken for equal" in plain["forecast"]["rests_on"]
    assert bare["forecast"] is None
    assert bare["attack"]["right"] is None
    assert bare["attack"]["separated"] == plain["attack"]["separated"]
    assert "the tap has no monitor and keeps no truth" in fedsim("watch", tmp_path / "bare").stdout


def test_a_running_recording_is_followed_to_its_end(fedsim, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "log", 20, strategy=Dying(9, fraction_train=0.4))
    steps = iter([3, 8, None])

    def meanwhile(seconds):
        """While the command waits, the server goes on."""
        last = next(steps)
        if last is None:
            record(tmp_path / "log", 4)
        else:
            with pytest.raises(KeyboardInterrupt):
                record(tmp_path / "log", 20, strategy=Dying(last, fraction_train=0.4))

    monkeypatch.setattr("time.sleep", meanwhile)
    done = fedsim("watch", tmp_path / "log", "--every", 5, "--json")
    rounds = [json.loads(line)["round"] for line in done.stdout.splitlines()]
    assert (done.status, rounds) == (0, [9, 20, 24])


def test_the_attack_never_reads_the_truth(fedsim, finished, tmp_path, monkeypatch):
    """The truth only scores: with another truth the attack claims the same."""
    before = json.loads(fedsim("watch", finished, "--json").stdout)["attack"]
    content = {p.relative_to(finished): p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    for name, data in content.items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(data)
    rng = np.random.default_rng(0)
    rows = [f"{t},{1000 + k}" for t in range(40) for k in range(CLIENTS) if rng.random() < 0.4]
    (tmp_path / "copy/truth/participation.csv").write_text("\n".join(["round,client", *rows]) + "\n")
    after = json.loads(fedsim("watch", tmp_path / "copy", "--json").stdout)["attack"]
    assert (after["separated"], after["expected"]) == (before["separated"], before["expected"])
    assert (before["right"], after["right"]) == (CLIENTS, 0)


def test_bad_input_is_one_line(fedsim, finished, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half/tap.json").write_bytes((finished / "tap.json").read_bytes())
    copied = tmp_path / "findings"
    for path in finished.rglob("*"):
        if path.is_file():
            (copied / path.relative_to(finished)).parent.mkdir(parents=True, exist_ok=True)
            (copied / path.relative_to(finished)).write_bytes(path.read_bytes())
    (copied / log.EXPOSURE_FILE).write_text("{}\n")
    for arguments, said in (
        (["nowhere"], "no recording of a tap in it"),
        (["empty"], "no recording of a tap in it"),
        (["half"], "not the state of a recording: "),
        (["findings", "--once"], "not the findings of a monitor: a line without its round"),
        ([str(finished), "--every", "0"], "0 is not in the range"),
        ([], "Missing argument 'DIR'"),
    ):
        done = fedsim("watch", *arguments)
        assert done.status == 2, arguments
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
