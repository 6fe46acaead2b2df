"""Participations from other systems: what is known of P is fixed, and mistakes are one line."""

import json
import sqlite3

import numpy as np
import pytest

from attacks.disaggregation import Recovery
from fedsim.core.errors import UserError
from scenarios.audit.adapters.flare import read_flare
from scenarios.audit.adapters.participations import Participations
from scenarios.audit.adapters.superlink import read_superlink
from scenarios.audit.adapters.table import read_table
from scenarios.audit.logs import Log
from scenarios.planted import Planted
from tests.helpers.superlink_database import write_database

TRUTH, TRANSCRIPT, COUNTS = Planted(clients=8, rounds=40, rate=0.3, window=4, dim=40, noise_sd=0.5).plant()
P = TRUTH.participation


@pytest.fixture
def log(tmp_path):
    """Noisy sums, counts, and cohort sizes in the current folder."""
    np.save(tmp_path / "sums.npy", TRANSCRIPT.aggregates)
    COUNTS.write_csv(tmp_path / "counts.csv")
    sizes = "".join(f"{r},{size}\n" for r, size in enumerate(P.sum(axis=1)))
    (tmp_path / "rounds.csv").write_text("round,cohort_size\n" + sizes)
    return tmp_path


def participations(rounds, *, absent=False):
    lines = [f"{r},{k},{P[r, k]}" for r in rounds for k in range(P.shape[1]) if absent or P[r, k]]
    return "round,client,took_part\n" + "\n".join(lines) + "\n"


SUMS = ("audit", "--aggregates", "sums.npy", "--rows", "sums", "--no-alternatives", "--out", "audit")


def test_known_participations_are_fixed(fedsim, log):
    """A tenth of P is known: no recovered column contradicts it."""
    (log / "known.csv").write_text(participations(range(0, 40, 10), absent=True))
    done = fedsim(*SUMS, "--counts", "counts.csv", "--participation", "known.csv")
    assert (done.status, done.stderr) == (0, "")
    found = Recovery.load(log / "audit/recovery.npz")
    assert len(found.clients) > 0
    for k, client in enumerate(found.clients):
        np.testing.assert_array_equal(found.participation[::10, k], P[::10, int(client)])


def test_a_full_table_is_the_participation(fedsim, log):
    (log / "all.csv").write_text(participations(range(40)).replace(",1\n", "\n").replace(",took_part", ""))
    done = fedsim(*SUMS, "--cohort-sizes", "rounds.csv", "--participation", "all.csv")
    assert (done.status, done.stderr) == (0, "")
    assert "separated     8 of 8 clients" in done.stdout
    found = Recovery.load(log / "audit/recovery.npz")
    np.testing.assert_array_equal(found.participation, P[:, [int(c) for c in found.clients]])


def test_whole_cohorts_leave_nobody_else(log):
    """Without a column took_part, absences follow from the cohort sizes, and only from them."""
    (log / "known.csv").write_text("round,client\n" + "".join(f"0,{k}\n" for k in np.flatnonzero(P[0])))
    known = read_table(log / "known.csv")
    sizes = {0: int(P[0].sum()), 1: 8}
    report = known.added_to(COUNTS, 40, sizes)
    single = report.stop - report.start == 1
    assert dict(zip(report.clients[report.client[single]], report.count[single], strict=True)) == dict(
        enumerate(P[0])
    )
    assert (known.added_to(COUNTS, 40, None).stop - 1 == 0).sum() == P[0].sum()
    with pytest.raises(UserError, match="took part in round 0, whose cohort size is 0"):
        known.added_to(COUNTS, 40, {0: 0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round,who\n0,a\n", "known.csv, line 1: expected the header round,client[,took_part]"),
        ("round,client\n0,a\nx,a\n", "known.csv, line 3: round is 'x', expected a whole number from 0 on"),
        ("round,client\n0, \n", "known.csv, line 2: a client without an id"),
        ("round,client,took_part\n0,a,yes\n", "known.csv, line 2: took_part is 'yes', expected 1 or 0"),
        ("round,client\n0,a\n0,a\n", "known.csv, line 3: client a is named twice in round 0"),
        ("round,client\n", "known.csv: it names no participation"),
        ("round,client\n99,a\n", "known.csv: it names round 99, and the log has rounds 0 to 39"),
        ("\xff\xfe", "known.csv"),
        (None, "known.csv: there is no such file"),
    ],
)
def test_mistaken_tables_are_one_line(fedsim, log, text, message):
    if text is not None:
        (log / "known.csv").write_text(text, encoding="latin-1")
    done = fedsim(*SUMS, "--participation", "known.csv")
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
    assert not (log / "audit").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--participation", "a", "--flare", "b"],
            "expected one of --participation, --superlink and --flare",
        ),
        (["--run", "3"], "--run 3: that belongs to --superlink: leave it out"),
        (["--superlink", "gone.db"], "gone.db: there is no such file"),
        (["--superlink", "counts.csv"], "counts.csv: not the state database of a SuperLink: "),
        (["--flare", "gone"], "gone: there is no such file or folder"),
        (["--flare", "counts.csv"], "counts.csv: not the round metrics of NVIDIA FLARE: "),
    ],
)
def test_mistaken_sources_are_one_line(fedsim, log, options, message):
    done = fedsim(*SUMS, *options)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


@pytest.mark.parametrize("numbered", [True, False])
def test_a_superlink_names_who_answered(tmp_path, numbered):
    rounds = range(3, 6) if numbered else range(3)
    write_database(tmp_path / "state.db", P, rounds=rounds, numbered=numbered)
    known = read_superlink(tmp_path / "state.db").known
    assert {entry for entry, took_part in known.items() if took_part} == {
        (r, str(2**63 + int(k))) for r in rounds for k in np.flatnonzero(P[r])
    }
    assert {(r, client) for (r, client), took_part in known.items() if not took_part} == {
        (r, str(2**63 + r % 8)) for r in rounds if not P[r, r % 8]
    }


def test_runs_of_a_superlink_are_chosen(tmp_path):
    for run in (5, 6):
        write_database(tmp_path / "state.db", P, rounds=range(2), run=run)
    with pytest.raises(UserError, match="several runs have trained: choose one with --run 5 or 6"):
        read_superlink(tmp_path / "state.db")
    assert read_superlink(tmp_path / "state.db", 6).known
    with pytest.raises(UserError, match="no messages of run 7 about training"):
        read_superlink(tmp_path / "state.db", 7)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE song (title TEXT)")
    with pytest.raises(UserError, match="it has no table of messages"):
        read_superlink(tmp_path / "other.db")


def test_flare_names_sites_by_round_and_counts_their_tasks(tmp_path):
    lines = [
        json.dumps(
            {"round": r, "sites": [{"name": f"site-{k}", "metrics": []} for k in np.flatnonzero(P[r])]}
        )
        for r in range(3)
    ]
    (tmp_path / "server/metrics").mkdir(parents=True)
    (tmp_path / "server/metrics/round_metrics.jsonl").write_text("\n".join(lines))
    event = "[E:{0}][R:x][T:2026-01-01 10:00:00][S:?][J:job][A:{1}#{2}]received task from server\n"
    for k in (1, 2):
        (tmp_path / f"site-{k}/job").mkdir(parents=True)
        tasks = [event.format(t, "train", t) + event.format(t, "train", t) for t in range(k + 3)]
        other = "[E:9][T:2026-01-01 10:00:00][U:?][A:_cert_login admin]\n" + event.format(
            8, "submit_model", 8
        )
        (tmp_path / f"site-{k}/job/audit.log").write_text("".join(tasks) + other)
    found = read_flare(tmp_path)
    assert set(found.known) == {(r, f"site-{k}") for r in range(3) for k in np.flatnonzero(P[r])}
    assert found.totals == {"site-1": 4, "site-2": 5}
    report = found.added_to(None, 40, None)
    assert ("site-2", 0, 40, 5.0) in [
        (str(report.clients[k]), *row)
        for k, *row in zip(report.client, report.start, report.stop, report.count, strict=True)
    ]
    with pytest.raises(UserError, match="client site-1 took part 4 times, and the log has 3 rounds"):
        found.added_to(None, 3, None)


def test_known_participations_of_lost_rounds_are_left_out(log):
    """Rounds without a row have no column entry to fix."""
    known = Participations(log, {(1, "0"): True, (2, "0"): False})
    np.save(log / "fewer.npy", np.delete(TRANSCRIPT.aggregates, 1, axis=0))
    lines = (log / "rounds.csv").read_text().splitlines()
    (log / "fewer.csv").write_text("\n".join([*lines[:2], *lines[3:]]))
    read = Log.read(log / "fewer.npy", cohort_sizes=log / "fewer.csv", participations=known)
    assert (read.counts.start.tolist(), read.counts.count.tolist()) == ([1], [0.0])
