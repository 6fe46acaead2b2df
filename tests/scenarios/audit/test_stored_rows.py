"""What servers really store: recordings of taps, means, models, integers, logs with gaps."""

import json
import random
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.serverapp.strategy import FedAvg

from analytics.report import ParticipationReport, windowed_counts
from fedsim import Tap
from fedsim.core.errors import UserError
from scenarios.audit.audit import audit
from scenarios.audit.checkpoints import Checkpoints
from scenarios.audit.logs import Log
from scenarios.audit.rounds import RoundTable, counts_of_rows
from scenarios.audit.rows import mean_updates
from scenarios.audit.servers import FedAdagrad, FedAdam, FedAvgM, server_named
from scenarios.audit.tap_folder import TapFolder
from scenarios.planted import Planted
from tests.helpers.dying import Dying
from tests.helpers.foreign_app import foreign_grid, initial_arrays

PLANTED = Planted(clients=8, rounds=40, rate=0.3, window=4, dim=40)
TRUTH, TRANSCRIPT, COUNTS = PLANTED.plant()
SIZES = TRANSCRIPT.cohort_sizes
SUMS = TRANSCRIPT.aggregates.astype(np.float64)
MEANS = SUMS / np.maximum(SIZES, 1)[:, None]


@pytest.fixture
def recorded(tmp_path):
    """Folders in which taps recorded the same training."""

    def record(**settings):
        random.seed(5)
        folder = tmp_path / f"log{len(list(tmp_path.iterdir()))}"
        tap = Tap(FedAvg(fraction_train=0.4, min_train_nodes=1), out=folder, window=4, **settings)
        tap.start(foreign_grid(8), initial_arrays(np.float64), num_rounds=40)
        return folder

    return record


@pytest.mark.parametrize(
    "settings", [{}, {"record": "mean"}, {"record": "model"}, {"weighted_by": "num-examples"}]
)
def test_a_taps_folder_is_audited_and_scored(fedsim, recorded, settings):
    if settings.get("record"):
        settings = settings | {"weighted_by": "num-examples"}
    folder = recorded(**settings)
    done = fedsim("audit", folder, "--no-alternatives")
    assert (done.status, done.stderr) == (0, "")
    result = json.loads((folder / "audit/result.json").read_text())
    assert result["verdict"] == "exposed"
    assert result["score"]["claimed"] == result["score"]["right"] == result["score"]["clients"] == 8
    assert result["score"]["false_proofs"] == 0
    assert "8 of 8 separated columns are right" in done.stdout
    assert "8 of 8 separated columns are right" in (folder / "audit/report.html").read_text()


def test_the_truth_is_not_needed(fedsim, recorded):
    """And it does not reach the attack: the findings are the same without it."""
    with_truth, without = recorded(), recorded(truth="none")
    for folder in (with_truth, without):
        assert fedsim("audit", folder, "--no-alternatives").status == 0
    first, second = (json.loads((f / "audit/result.json").read_text()) for f in (with_truth, without))
    assert first.pop("score") is not None
    assert second.pop("score") is None
    # The report's sentences speak of the score.
    assert first | {"seconds": 0, "statements": []} == second | {"seconds": 0, "statements": []}


def test_an_unfinished_recording_is_audited(fedsim, recorded):
    """A server that was killed left a row without its line."""
    folder = recorded()
    for name in ("transcript/rounds.csv", "truth/participation.csv"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("39,")]
        (folder / name).write_text("".join(kept))
    counts = [line for line in (folder / "counts.csv").read_text().splitlines() if ",40," not in line]
    (folder / "counts.csv").write_text("\n".join(counts))
    done = fedsim("audit", folder, "--no-alternatives", "--json")
    assert (done.status, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rounds"] == 39


def doubts_about(log):
    return [doubt.mend for doubt in audit(log, alternatives=False).doubts]


def test_models_do_not_pass_for_sums():
    models = 5 + np.cumsum(MEANS, axis=0) / 20
    (doubt,) = doubts_about(Log(models, COUNTS, None, None, {}, assumed=True))[-1:]
    assert "--models PATH" in doubt


def test_means_do_not_pass_for_sums():
    log = Log(MEANS, COUNTS, SIZES, None, {}, assumed=True)
    assert any("--rows means" in mend for mend in doubts_about(log))
    assert audit(log, alternatives=False).verdict == "inconclusive"
    # Neither do sums that were multiplied by the cohort sizes, nor means whose user calls them sums.
    assert doubts_about(Log(SUMS * SIZES[:, None], COUNTS, SIZES, None, {}, stated="means"))
    assert doubts_about(Log(MEANS, COUNTS, SIZES, None, {}, stated="sums"))
    assert not doubts_about(Log(SUMS, COUNTS, SIZES, None, {}, assumed=True))


def test_rows_under_noise_must_say_what_they_are(tmp_path):
    _, transcript, counts = Planted(clients=8, rounds=40, rate=0.3, window=4, dim=40, noise_sd=0.3).plant()
    np.save(tmp_path / "rows.npy", transcript.aggregates)
    counts.write_csv(tmp_path / "counts.csv")
    read = {
        rows: Log.read(tmp_path / "rows.npy", tmp_path / "counts.csv", rows=rows)
        for rows in (None, "sums", "means")
    }
    assert [bool(doubts_about(log)) for log in read.values()] == [True, False, True]
    assert "--cohort-sizes FILE" in doubts_about(read["means"])[0]


def test_integers_must_say_their_modulus(fedsim, tmp_path):
    whole = np.round(SUMS * 1000).astype(np.int64)
    np.save(tmp_path / "rows.npy", (whole % 2**14).astype(np.uint16))
    COUNTS.write_csv(tmp_path / "counts.csv")
    options = ("--aggregates", "rows.npy", "--counts", "counts.csv", "--no-alternatives")
    done = fedsim("audit", *options, "--out", "a")
    assert "verdict       inconclusive" in done.stdout
    assert "--modulus N" in done.stdout
    done = fedsim("audit", *options, "--out", "b", "--modulus", 2**14, "--rows", "sums")
    assert "separated     8 of 8" in done.stdout


def test_a_rank_below_the_clients_of_the_counts_is_a_contradiction():
    counts = windowed_counts(np.hstack([TRUTH.participation, TRUTH.participation[:, ::-1]]), 4)
    assert doubts_about(Log(SUMS, counts, None, None, {})) == ["--counts FILE of these rounds"]


def test_nobody_separated_from_clean_sums_is_no_comfort():
    """Rows of low rank whose column space holds no participation: means with unknown weights, for example."""
    rng = np.random.default_rng(0)
    rows = (TRUTH.participation * rng.random((40, 8))) @ rng.standard_normal((8, 40))
    log = Log(rows, None, None, None, {})
    found = audit(log, alternatives=False)
    assert (found.separated, found.verdict) == (0, "inconclusive")


@pytest.mark.parametrize(
    "server", [FedAvgM(0.5, 0.9), FedAdam(), FedAdam(eta=0.01, tau=3e-3), FedAdagrad(eta=0.05)]
)
def test_servers_are_undone(server):
    """Models of the server's own formula, in double precision: the mean updates come back."""
    models, m, v = [np.ones(40)], 0.0, 0.0
    for r, mean in enumerate(MEANS / 100):
        if isinstance(server, FedAvgM):
            m = server.server_momentum * m + mean
            models.append(models[-1] + server.server_learning_rate * m)
            continue
        m = server.beta_1 * m + (1 - server.beta_1) * mean
        adagrad = isinstance(server, FedAdagrad)
        v = v + mean**2 if adagrad else server.beta_2 * v + (1 - server.beta_2) * mean**2
        t = r + 2
        rate = server.eta if adagrad else server.eta * np.sqrt(1 - server.beta_2**t) / (1 - server.beta_1**t)
        models.append(models[-1] + rate * m / (np.sqrt(v) + server.tau))
    steps = mean_updates(np.array(models), np.arange(41), server)
    means, rounds = steps.means, steps.rounds
    told = means.any(axis=0)  # entries whose steps have two explanations are left out, in all rounds
    assert told.sum() >= 10
    np.testing.assert_allclose(means[:, told], (MEANS / 100)[:, told], atol=1e-6)
    np.testing.assert_array_equal(rounds, np.arange(40))


def test_a_missing_model_costs_the_rounds_beside_it():
    models = np.cumsum(np.vstack([np.ones(40), MEANS]), axis=0)
    there = np.delete(np.arange(41), [10, 30])
    steps = mean_updates(models[there], there, server_named("fedavg"))
    np.testing.assert_array_equal(steps.rounds, np.delete(np.arange(40), [9, 10, 29, 30]))
    np.testing.assert_allclose(steps.means, MEANS[steps.rounds], atol=1e-4)
    after_gaps = mean_updates(models[there], there, FedAvgM()).rounds
    np.testing.assert_array_equal(after_gaps, np.delete(np.arange(40), [9, 10, 11, 29, 30, 31]))
    np.testing.assert_array_equal(mean_updates(models[there], there, FedAdam()).rounds, np.arange(9))


@pytest.mark.parametrize("server", [server_named("fedavg"), FedAvgM()])
def test_places_are_those_of_the_models_with_which_the_rounds_began(server):
    models = np.cumsum(np.vstack([np.ones(40), MEANS[:15]]), axis=0)
    there = np.delete(np.arange(16), 7)
    steps = mean_updates(models[there], there, server)
    began = models[steps.rounds]
    began = began - began.mean(axis=0)
    np.testing.assert_allclose(steps.places @ steps.places.T, began @ began.T, rtol=1e-4, atol=1e-4)


def test_models_that_stand_still_or_overflow_have_no_places():
    assert mean_updates(np.ones((5, 3)), np.arange(5), server_named("fedavg")).places.shape == (4, 0)
    broken = np.array([[0.0], [np.nan], [1.0]])
    assert mean_updates(broken, np.arange(3), server_named("fedavg")).places.shape == (2, 0)


def test_a_server_that_begins_again_has_no_memory():
    """Two models of the same round: the last one of a killed server, and the first one of the next."""
    steps = np.array([0.9 ** np.arange(n, -1, -1) @ MEANS[: n + 1] for n in range(8)])  # momentum of .9
    models = np.cumsum(np.vstack([np.ones(40), steps]), axis=0)
    rounds = np.concatenate([np.arange(9), 8 + np.arange(9)])
    told = mean_updates(np.vstack([models, models]), rounds, FedAvgM())
    np.testing.assert_array_equal(told.rounds, np.arange(16))
    np.testing.assert_allclose(told.means, np.tile(MEANS[:8], (2, 1)), atol=1e-4)


def test_models_of_a_server_that_was_killed_give_the_same_sums(tmp_path):
    """The second server begins with the initial model again: the step in between is nobody's update."""

    def tapped(strategy):
        sums = Tap(strategy, out=tmp_path / "sums", weighted_by="num-examples")
        return Tap(sums, out=tmp_path / "models", weighted_by="num-examples", record="model")

    with pytest.raises(KeyboardInterrupt):
        tapped(Dying(5, fraction_train=0.4)).start(foreign_grid(8), initial_arrays(), num_rounds=9)
    tapped(FedAvg(fraction_train=0.4)).start(foreign_grid(8), initial_arrays(), num_rounds=6)
    sums, models = (TapFolder.open(tmp_path / name).read() for name in ("sums", "models"))
    assert sums.aggregates.shape == (11, 16)
    np.testing.assert_allclose(models.aggregates, sums.aggregates, atol=1e-5)


def safetensors(path, arrays):
    header, body = {}, b""
    for name, array in arrays.items():
        kind = {"f": "F", "i": "I"}[array.dtype.kind] + str(8 * array.dtype.itemsize)
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + array.nbytes],
        }
        body += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("form", ["npz", "pt", "safetensors", "shards", "table.npy"])
def test_checkpoints_are_read_and_audited(fedsim, tmp_path, form):
    models = np.cumsum(np.vstack([np.ones(40), MEANS]), axis=0)
    (tmp_path / "saved").mkdir()
    for number, model in enumerate(models):
        arrays = {
            "w": model[:30].reshape(5, 6),
            "b": model[30:],
            "n.running_mean": np.full(3, number / 7),
            "steps": np.array(number),
        }
        match form:
            case "npz":
                np.savez(tmp_path / f"saved/round-{number:03}.npz", **arrays)
            case "pt":
                tensors = {name: torch.tensor(array) for name, array in arrays.items()}
                torch.save({"epoch": number, "model": tensors}, tmp_path / f"saved/model{number}.pt")
            case "safetensors":
                safetensors(tmp_path / f"saved/ckpt_{number}.safetensors", arrays)
            case "shards":
                (tmp_path / f"saved/round{number}").mkdir()
                for k, (name, array) in enumerate(arrays.items()):
                    safetensors(tmp_path / f"saved/round{number}/model-{k}-of-4.safetensors", {name: array})
    path = "saved"
    if form == "table.npy":
        path = "models.npy"
        np.save(tmp_path / path, models)
    read = Checkpoints.read(tmp_path / path)
    np.testing.assert_array_equal(read.models, models)
    COUNTS.write_csv(tmp_path / "counts.csv")
    lines = [f"{r},{size}\n" for r, size in enumerate(SIZES)]
    (tmp_path / "rounds.csv").write_text("round,cohort_size\n" + "".join(lines))
    options = (
        "--counts",
        "counts.csv",
        "--cohort-sizes",
        "rounds.csv",
        "--out",
        "audit",
        "--no-alternatives",
    )
    done = fedsim("audit", "--models", path, *options)
    assert (done.status, done.stderr) == (0, "")
    assert "verdict       exposed" in done.stdout
    assert "separated     8 of 8" in done.stdout


def test_gaps_make_counts_uncertain():
    """The rest of a count has the hypergeometric mean; counts of none and of all stay exact."""
    report = ParticipationReport.from_rows(
        [("a", 0, 4, 2), ("a", 4, 8, 4), ("b", 0, 4, 0), ("b", 4, 8, 1), ("c", 8, 9, 1)]
    )
    rows = counts_of_rows(report, np.array([0, 1, 2, 4, 5, 6, 7]))
    assert rows.start.tolist() == [0, 3, 0, 3]
    assert rows.stop.tolist() == [3, 7, 3, 7]
    assert rows.count.tolist() == [1.5, 4, 0, 1]
    assert [sd > 0 for sd in rows.sd] == [True, False, False, False]
    kept = np.delete(np.arange(40), [7, 8, 21])
    log = Log(SUMS[kept], counts_of_rows(COUNTS, kept), SIZES[kept], None, {}, rounds=kept)
    found = audit(log, alternatives=False)
    right = (found.recovery.participation == TRUTH.participation[kept]).all(axis=0)
    assert right.sum() == found.separated == 8


def test_rounds_may_be_missing_from_a_table(tmp_path):
    (tmp_path / "rounds.csv").write_text("round,cohort_size,weight\n3,7,70\n0,5,nan\n")
    table = RoundTable.read(tmp_path / "rounds.csv")
    assert (table.rounds.tolist(), table.cohort_sizes.tolist(), table.weights.tolist()) == (
        [0, 3],
        [5, 7],
        [0, 70],
    )
    np.save(tmp_path / "sums.npy", np.ones((2, 1)))
    (tmp_path / "counts.csv").write_text("client,start,stop,count\na,0,4,4\n")
    log = Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv", cohort_sizes=tmp_path / "rounds.csv")
    assert (log.gaps, log.counts.stop.tolist(), log.counts.count.tolist()) == (2, [2], [2])
    assert replace(log, rounds=None).gaps == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "expected one of DIR, --aggregates and --models"),
        (["log", "--models", "saved"], "expected one of DIR"),
        (["log", "--out", "a"], "log: there is no recording of a tap in it"),
        (["log", "--counts", "counts.csv"], "--counts: that does not belong to DIR"),
        (
            ["--aggregates", "sums.npy", "--server", "fedavg", "--out", "a"],
            "--server: that does not belong to --agg",
        ),
        (["--models", "gone", "--out", "a"], "gone: there is no such file"),
        (["--models", "saved", "--out", "a"], "saved: expected checkpoints with a number in their names"),
        (
            ["--models", "saved", "--server", "sgd", "--out", "a"],
            "--server sgd: expected one of fedavg, fedavgm",
        ),
        (
            ["--models", "models.npy", "--server", "fedadam,rate=1", "--out", "a"],
            "'rate=1', expected eta=NUMBER",
        ),
        (["--models", "models.npy", "--server", "fedadam,eta=0", "--out", "a"], "'eta=0', expected a number"),
        (
            ["--models", "models.npy", "--server", "fedavgm,server_momentum=1", "--out", "a"],
            "'server_momentum=1', expected a number from 0 to below 1",
        ),
        (["--models", "models.npy", "--rows", "sums", "--out", "a"], "--rows sums: models are means"),
        (["--models", "bad.npy", "--out", "a"], "bad.npy: not a checkpoint"),
        (["--models", "models.npy"], "--out: expected a new folder"),
        (
            ["--aggregates", "models.npy", "--modulus", "8", "--out", "a"],
            "the rows of models.npy are no integers",
        ),
    ],
)
def test_mistakes_are_one_line(fedsim, tmp_path, options, message):
    (tmp_path / "saved").mkdir()
    (tmp_path / "log").mkdir()
    np.save(tmp_path / "models.npy", np.ones((3, 2)))
    (tmp_path / "bad.npy").write_bytes(b"no")
    done = fedsim("audit", *options)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model-1.npz", b"zip?", "model-1.npz: not a checkpoint"),
        ("model-1.pt", b"torch?", "model-1.pt: not a checkpoint: it is not written by torch.save"),
        ("model-1.safetensors", b"\xff" * 8, "model-1.safetensors: not a checkpoint"),
        ("model-01.npz", None, "model-1.npz: model-01.npz is a checkpoint of round 1 too"),
        ("model-2.npz", {"w": np.ones(3)}, "model-2.npz: the array 'w' has shape (3,), expected shape (2,)"),
        ("model-2.npz", {"v": np.ones(2)}, "model-2.npz: the array 'w' is missing"),
    ],
)
def test_damaged_checkpoints_are_named(tmp_path, name, content, message):
    for number in range(2):
        np.savez(tmp_path / f"model-{number}.npz", w=np.ones(2))
    if name.startswith("model-1.") and name != "model-1.npz":
        (tmp_path / "model-1.npz").unlink()
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        np.savez(tmp_path / name, **(content or {"w": np.ones(2)}))
    with pytest.raises(UserError, match=re.escape(message)):
        Checkpoints.read(tmp_path)
