"""Audits of logs: the same findings as the simulator's own attack, from files only."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from analytics import windowed_counts
from analytics.report import ParticipationReport
from attacks.disaggregation import Recovery
from fedsim.core.errors import UserError
from scenarios.audit.audit import audit
from scenarios.audit.logs import Log
from scenarios.audit.sums import read_sums
from scenarios.audit.words import conclusion, remarks
from scenarios.planted import Planted

PLANTED = Planted(clients=8, rounds=40, rate=0.3, window=4, dim=40)


@pytest.fixture
def log_files(tmp_path):
    """A log without noise, with names for ids, and the truth that it holds."""
    truth, transcript, counts = PLANTED.plant()
    np.save(tmp_path / "sums.npy", transcript.aggregates)
    names = [f"device-{k}" for k in "hgfedcba"]
    with (tmp_path / "counts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("client", "start", "stop", "count"))
        for client, start, stop, count in zip(
            counts.client, counts.start, counts.stop, counts.count, strict=True
        ):
            writer.writerow((names[client], start, stop, int(count)))
    return truth


def test_an_audit_is_the_simulators_own_attack(fedsim, finished_run, tmp_path):
    """The same transcript and counts, without the truth: the same arrays."""
    done = fedsim(
        *("audit", "--aggregates", finished_run.transcript, "--counts", finished_run.counts),
        *("--out", "audit", "--seed", 3),
    )
    assert (done.status, done.stderr) == (0, "")
    audited, own = Recovery.load(tmp_path / "audit/recovery.npz"), Recovery.load(finished_run.recovery)
    for name, array in own.arrays().items():
        np.testing.assert_array_equal(audited.arrays()[name], array)


def test_what_an_audit_leaves(fedsim, log_files, tmp_path):
    done = fedsim("audit", "--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "audit")
    assert (done.status, done.stderr) == (0, "")
    assert "8 of 8 clients (counts)" in done.stdout
    recovery = Recovery.load(tmp_path / "audit/recovery.npz")
    assert list(recovery.clients) == [f"device-{k}" for k in "hgfedcba"]
    np.testing.assert_array_equal(recovery.participation, log_files.participation)
    result = json.loads((tmp_path / "audit/result.json").read_text())
    assert result["separated"] == 8
    assert result["noise"]["exact"]
    with (tmp_path / "audit/clients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == list(recovery.clients)
    assert [int(row["rounds"]) for row in rows] == list(log_files.participation.sum(axis=0))
    page = (tmp_path / "audit/report.html").read_text()
    assert "device-a" in page
    assert not re.search(r'\s(src|href)="(?!data:)', page)
    (drawn,) = [json.loads(s) for s in re.findall(r"data-spec='([^']*)'", page) if "took part" in s]
    cells = {(cell["client"], cell["round"]) for cell in drawn["layer"][0]["data"]["values"]}
    took_part = zip(*np.nonzero(log_files.participation), strict=True)
    assert cells == {(str(recovery.clients[k]), r) for r, k in took_part}


def test_changes_are_tried_on_the_log_itself(log_files, tmp_path):
    log = Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv")
    tried = {a.change: a.separated for a in audit(log).alternatives}
    assert tried["only the first 10 of 40 rounds"] < 8
    assert tried["only the first 30 of 40 rounds"] == 8
    assert tried["one count in place of 8"] <= tried["one count in place of 2"]
    assert audit(log, alternatives=False).alternatives == ()


def test_changes_are_tried_with_the_audits_own_solver():
    """A weaker solver would mistake its own failure for protection."""
    _, transcript, counts = Planted(clients=24, rounds=96, rate=0.2, window=8, seed=3).plant()
    tried = audit(Log(transcript.aggregates, counts, None, None, {})).alternatives[-1]
    assert tried.change.startswith("only the first 24 of")
    past = counts.stop <= 24
    early = ParticipationReport(
        counts.clients, counts.client[past], counts.start[past], counts.stop[past], counts.count[past]
    )
    alone = audit(Log(transcript.aggregates[:24], early, None, None, {}), num_clients=24, alternatives=False)
    assert tried.separated == alone.separated > 0


def test_without_counts_columns_have_no_names(log_files, tmp_path):
    found = audit(Log.read(tmp_path / "sums.npy"), alternatives=False)
    assert (found.num_clients, found.told_by) == (8, "spectrum")
    ours = {column.tobytes() for column in found.recovery.participation.T}
    assert ours == {column.tobytes() for column in log_files.participation.T}


def test_clients_that_never_answered_show_in_the_spectrum(log_files, tmp_path):
    lines = (tmp_path / "counts.csv").read_text().splitlines(keepends=True)
    (tmp_path / "counts.csv").write_text("".join(line for line in lines if not line.startswith("device-a")))
    found = audit(Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv"), alternatives=False)
    assert (found.num_clients, found.told_by) == (8, "spectrum")
    np.testing.assert_array_equal(found.recovery.participation, log_files.participation[:, :7])


def test_empty_rounds_do_not_pass_for_the_end_of_the_spectrum():
    """Noise fills every direction but those of rounds in which nobody took part."""
    rng = np.random.default_rng(1)
    P = (rng.random((40, 6)) < 0.3) & (np.arange(40)[:, None] % 8 > 0)
    noise = 0.01 * rng.standard_normal((40, 400))
    noise[~P.any(axis=1)] = 0
    A = P @ rng.standard_normal((6, 400)) + noise
    found = audit(Log(A, windowed_counts(P, 4), None, None, {}), alternatives=False)
    assert (found.num_clients, found.told_by, found.exact) == (6, "counts", False)
    assert audit(Log(A, None, None, None, {}), alternatives=False).num_clients == 6


@pytest.mark.parametrize("form", ["npz", "wide.parquet", "long.parquet"])
def test_sums_in_other_files(form, log_files, tmp_path):
    sums = np.load(tmp_path / "sums.npy")
    path = tmp_path / f"sums.{form}"
    match form:
        case "npz":
            np.savez_compressed(path, aggregates=sums, other=np.zeros(3))
        case "wide.parquet":
            names = ["round", *(f"w{i}" for i in range(sums.shape[1]))]
            parquet.write_table(
                pyarrow.table([range(len(sums)), *sums.T], names=names), path, row_group_size=7
            )
        case _:
            parquet.write_table(pyarrow.table({"sum": list(sums)}), path)
    np.testing.assert_array_equal(read_sums(path), sums)


HEADER = "client,start,stop,count\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"counts.csv": "client,start,stop\n"},
            "counts.csv, line 1: expected the header client,start,stop,count",
        ),
        ({"counts.csv": HEADER + "a,0,4,1\n\nb,0,x,1\n"}, "counts.csv, line 4: expected client,start"),
        (
            {"counts.csv": HEADER + "a,0,4,1\na,4,8,5\n"},
            "counts.csv, line 3: client a, rounds 4..7, count 5: more",
        ),
        (
            {"counts.csv": HEADER + "a,0,4,-1\n"},
            "counts.csv, line 2: client a, rounds 0..3, count -1: a count",
        ),
        ({"counts.csv": HEADER + "a,0,4,1.5\n"}, "counts.csv, line 2: client a"),
        (
            {"counts.csv": HEADER + "a,0,4,1\n\na,4,99,1\n"},
            "counts.csv, line 4: client a, rounds 4..98, count 1: there are only 40",
        ),
        ({"counts.csv": HEADER + f"a,0,{10**30},1\n"}, "counts.csv, line 2: expected"),
        ({"counts.csv": HEADER}, "counts.csv: no client in the report"),
        ({"counts.csv": HEADER + "a,0,4,4\na,2,4,0\n"}, "counts.csv: "),
        ({"counts.csv": b"\xff\xfe"}, "counts.csv: not a CSV file"),
        ({"counts.csv": None}, "counts.csv: there is no such file"),
        ({"sums.npy": None}, "sums.npy: there is no such file"),
        ({"sums.npy": b"sums"}, "sums.npy: not a .npy file of sums"),
        ({"sums.npy": np.zeros(3)}, "sums.npy: (3,), expected two dimensions: rounds × entries of a sum"),
        ({"sums.npy": np.zeros((0, 3))}, "sums.npy: shape (0, 3), expected at least one round"),
        ({"sums.npy": np.full((40, 3), 1e200)}, "sums.npy: the largest entry is 1e+200"),
        ({"counts.csv": HEADER.replace(",", ";")}, "but got client;start;stop;count"),
        ({"counts.csv": HEADER + " ,0,4,1\n"}, "counts.csv, line 2: expected client,start"),
        (
            {"sums.npy": np.full((40, 3), np.nan)},
            "sums.npy: nan in round 0, entry 0; expected finite numbers",
        ),
        ({"sums.npy": np.full((40, 3), 1j)}, "sums.npy: dtype complex128, expected real numbers"),
        ({"rounds.csv": "round,size\n0,1\n"}, "rounds.csv, line 1: expected a column cohort_size"),
        ({"rounds.csv": "round,cohort_size\n0,1\n1,x\n"}, "rounds.csv, line 3: cohort_size is 'x'"),
        ({"rounds.csv": "round,cohort_size\n0,1\n"}, "rounds.csv: shape (1,), expected one for each of 40"),
        (
            {"rounds.csv": "round,cohort_size\n1,1\n2,1\n"},
            "rounds.csv: not a CSV file of cohort sizes: its column round begins at 1",
        ),
        (
            {"rounds.csv": "cohort_size\n" + "9\n" * 40},
            "rounds.csv: 9 in round 0, expected a whole number from 0 to the 8 clients of the counts",
        ),
        ({"rounds.csv": b"\xff\xfe"}, "rounds.csv: not a CSV file"),
        (
            {"rounds.csv": f"round,cohort_size\n0,{10**30}\n"},
            "rounds.csv, line 2: cohort_size is '1000000000000000000000000000000'",
        ),
        ({"layers.json": "{}"}, 'layers.json: expected {"shapes"'),
        ({"layers.json": '{"shapes": [[40.5]]}'}, 'layers.json: expected {"shapes"'),
        ({"layers.json": "[" * 100_000}, 'layers.json: expected {"shapes"'),
        ({"layers.json": '{"shapes": [[3]]}'}, "layers.json: 3 entries in all, expected the 40"),
    ],
)
def test_malformed_files_are_named_in_one_line(fedsim, log_files, tmp_path, files, message):
    options = ["--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "audit"]
    for name, content in files.items():
        if content is None:
            (tmp_path / name).unlink()
        elif isinstance(content, np.ndarray):
            np.save(tmp_path / name, content)
        else:
            (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        options += {"rounds.csv": ["--cohort-sizes", name], "layers.json": ["--layers", name]}.get(name, [])
    done = fedsim("audit", *options)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert not (tmp_path / "audit").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clients", "3"], "--clients: 3 is fewer than the 8 in the counts"),
        (["--solver", "magic"], "--solver: 'magic', expected one of projection, "),
        (["--counts-sd", "nan"], "--counts-sd nan: expected a standard deviation"),
        (["--out", "."], ". exists: choose another --out"),
        (["--out", "sums.npy/below"], "--out sums.npy/below: cannot be written to: Not a directory"),
        (["--cohort-sizes", "gone.csv"], "gone.csv: there is no such file"),
        (["--layers", "gone.json"], "gone.json: there is no such file"),
    ],
)
def test_mistaken_options(fedsim, log_files, tmp_path, options, message):
    done = fedsim("audit", "--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "audit", *options)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("two.npz", lambda path: np.savez(path, a=np.eye(2), b=np.eye(2))),
        ("not.npz", lambda path: path.write_bytes(b"zip?")),
        ("not.parquet", lambda path: path.write_bytes(b"parquet?")),
        ("text.parquet", lambda path: parquet.write_table(pyarrow.table({"a": ["x"]}), path)),
        ("ragged.parquet", lambda path: parquet.write_table(pyarrow.table({"a": [[1.0], [1.0, 2.0]]}), path)),
        (
            "empty.parquet",
            lambda path: parquet.write_table(pyarrow.table({"a": pyarrow.array([], "double")}), path),
        ),
        ("sums.txt", lambda path: path.write_text("1 2 3")),
        ("none.npz", np.savez),
        *(
            (f"{name}.parquet", lambda path, table=table: parquet.write_table(pyarrow.table(table), path))
            for name, table in {
                "null": {"a": [[1.0], None]},
                "dates": {"a": [1.0], "when": np.array(["2026-01-01"], dtype="datetime64[s]")},
                "digits": {"a": ["1"]},
                "records": {"a": [{"b": 1.0}]},
                "numbers-only": {"round": [0]},
                "from-one": {"round": [1, 2], "a": [1.0, 2.0]},
            }.items()
        ),
    ],
)
def test_files_that_hold_no_sums(name, write, tmp_path):
    write(tmp_path / name)
    with pytest.raises(UserError, match=name):
        read_sums(tmp_path / name)


def test_rows_are_put_in_the_order_of_their_rounds(tmp_path):
    table = pyarrow.table({"round": [2, 0, 1], "a": [20.0, 0.0, 10.0]})
    parquet.write_table(table, tmp_path / "sums.parquet", row_group_size=2)
    assert read_sums(tmp_path / "sums.parquet").tolist() == [[0.0], [10.0], [20.0]]
    np.save(tmp_path / "sums.npy", np.ones((3, 1)))
    (tmp_path / "rounds.csv").write_text("round,cohort_size\n2,7\n0,5\n1,6\n")
    log = Log.read(tmp_path / "sums.npy", cohort_sizes=tmp_path / "rounds.csv")
    assert log.cohort_sizes.tolist() == [5, 6, 7]


def test_blanks_around_ids_do_not_make_other_clients(tmp_path):
    np.save(tmp_path / "sums.npy", np.ones((4, 1)))
    (tmp_path / "counts.csv").write_text("client, start, stop, count\na,0,2,1\n a , 2 , 4 , 1\n")
    assert Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv").counts.clients.tolist() == ["a"]


def test_errors_of_counts_are_stated_once_and_for_counts(fedsim, log_files, tmp_path):
    (tmp_path / "noisy.csv").write_text("client,start,stop,count,sd\na,0,4,1,0.5\n")
    for counts, message in ((["--counts", "noisy.csv"], "column sd"), ([], "--counts-sd 1: there are no")):
        done = fedsim("audit", "--aggregates", "sums.npy", *counts, "--counts-sd", "1", "--out", "audit")
        assert (done.status, len(done.stderr.splitlines())) == (2, 1)
        assert message in done.stderr


@pytest.mark.parametrize(
    ("clients", "counts"), [(4, []), (100_000, []), (100_000, ["--counts", "counts.csv"])]
)
def test_a_number_of_clients_that_the_rank_contradicts_is_no_comfort(fedsim, log_files, clients, counts):
    """The sums have rank 8, and all eight columns come out of them without the number."""
    done = fedsim("audit", "--aggregates", "sums.npy", *counts, "--out", "audit", "--clients", clients)
    assert (done.status, done.stderr) == (0, "")
    assert "separated     8 of 8 clients (spectrum): 8 consistent\n" in done.stdout
    assert f"Inconclusive: --clients says {clients}, but sums without noise have rank 8." in done.stdout


def test_more_clients_than_rounds_under_noise_is_inconclusive():
    noisy = Planted(clients=8, rounds=40, rate=0.3, window=4, dim=40, noise_sd=0.5)
    _, transcript, _ = noisy.plant()
    found = audit(Log(transcript.aggregates, None, None, None, {}), num_clients=1000, alternatives=False)
    assert (found.separated, found.rejected) == (0, None)
    assert any(sentence.startswith("Inconclusive: with 1000 clients") for sentence in remarks(found))


def test_a_count_far_beyond_its_error_is_one_line(fedsim, log_files, tmp_path):
    lines = (tmp_path / "counts.csv").read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ",1e300"
    (tmp_path / "counts.csv").write_text("\n".join(lines))
    options = ("--counts", "counts.csv", "--counts-sd", "1", "--out", "audit")
    done = fedsim("audit", "--aggregates", "sums.npy", *options)
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == (
        "fedsim: counts.csv, line 4: client device-h, rounds 8..11, count 1e+300: "
        "more than 1000 standard deviations from any possible count\n"
    )
    assert not (tmp_path / "audit").exists()


def test_solvers_that_need_counts_say_so(fedsim, log_files, tmp_path):
    done = fedsim("audit", "--aggregates", "sums.npy", "--solver", "projection", "--out", "audit")
    assert (done.status, done.stdout) == (2, "")
    assert "--solver: projection needs counts, and there are none; expected auto or blind" in done.stderr


def test_counts_of_other_rounds_are_no_clean_bill(log_files, tmp_path):
    """Windows that are named from 1 fit no column, and the audit says what the sums alone give away."""
    lines = (tmp_path / "counts.csv").read_text().splitlines()
    moved = [lines[0]]
    for client, start, stop, count in (line.split(",") for line in lines[1:]):
        if count != stop and int(count) < int(stop) - int(start):
            moved.append(f"{client},{int(start) + 1},{stop},{count}")
    (tmp_path / "counts.csv").write_text("\n".join(moved))
    found = audit(Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv"))
    assert found.separated < found.sums_alone == 8
    assert any("Do the counts and the cohort sizes belong" in sentence for sentence in remarks(found))
    assert not remarks(audit(Log.read(tmp_path / "sums.npy"), alternatives=False))


def test_what_the_counts_cannot_tell_is_not_claimed(log_files, tmp_path):
    """Counts that say next to nothing give columns at random names, and groups share an update."""
    log = Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv", counts_sd=1000.0)
    found = audit(log, alternatives=False)
    assert found.expected_right < 2 < found.separated
    assert f"About {found.expected_right:.1f} of the {found.separated} are right" in conclusion(found)
    _, transcript, counts = PLANTED.plant()
    twice = np.concatenate((counts.clients, ["twin"]))
    rows = counts.client == 0
    twin = ParticipationReport(
        twice,
        *(
            np.concatenate((values, values[rows] if values is not counts.client else np.full(rows.sum(), 8)))
            for values in (counts.client, counts.start, counts.stop, counts.count)
        ),
    )
    found = audit(Log(transcript.aggregates, twin, None, None, {}), alternatives=False)
    assert found.singled_out == found.separated - 2


def test_counts_beyond_the_cohorts_are_told(log_files, tmp_path):
    log = Log.read(tmp_path / "sums.npy", tmp_path / "counts.csv")
    sizes = log_files.participation.sum(axis=1)
    assert audit(replace(log, cohort_sizes=sizes), alternatives=False).doubted is None
    found = audit(replace(log, cohort_sizes=np.maximum(sizes - 1, 0)), alternatives=False)
    assert found.doubted > 0
    assert "more than the cohort sizes" in remarks(found)[0]
