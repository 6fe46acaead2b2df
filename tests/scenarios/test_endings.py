"""How commands end: one line and the documented status for every known reason."""

import errno
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import numpy as np
import pytest

from fedsim.core.errors import ProcessLostError, RunFailedError, UserError
from scenarios.endings import EXIT_STATUS_HELP, Status, ending
from scenarios.interruptions import StoppedError

RUNS_IN_ITS_OWN_PROCESS = [sys.executable, "-c", "from scenarios.cli import main; main()"]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("x is 1"), 2, "x is 1"),
        (click.UsageError("no such option"), 2, "no such option"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300), 2, "x" * 40 + "…: File name too long"),
        (RunFailedError("it diverged"), 3, "it diverged"),
        (ProcessLostError("a worker is gone"), 3, "a worker is gone"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), 3, "a/b: No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), 3, "a/b: Read-only file system"),
        (OSError(errno.EMFILE, "Too many open files"), 3, "Too many open files"),
        (MemoryError(), 3, "not enough memory"),
        (MemoryError("1 TiB"), 3, "not enough memory: 1 TiB"),
        (RuntimeError("x: can't allocate memory: you asked for 9"), 3, "not enough memory: you asked for 9"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (StoppedError("interrupted; go on"), 130, "interrupted; go on"),
    ],
)
def test_known_reasons_have_a_status_and_a_line(error, status, line):
    assert ending(error) == (status, line)


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("x"), OSError(errno.ENOENT, "gone"), KeyError(1)]
)
def test_faults_of_the_program_keep_their_traceback(error):
    assert ending(error) is None


def test_help_and_docs_list_every_status():
    table = (Path(__file__).parents[2] / "docs/exit-status.md").read_text()
    for status in Status:
        assert f"| {status} |" in table
        assert re.search(rf"\b{status} ", EXIT_STATUS_HELP)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(unbuffered):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*RUNS_IN_ITS_OWN_PROCESS, "--help"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("inside", "after", "expected"),
    [
        ("ctrl_c()", "", (1, "", "KeyboardInterrupt\n")),
        ("try:\n        ctrl_c()\n    finally:\n        ctrl_c()", "", (130, "", "fedsim: interrupted\n")),
        # Python waits for worker processes when the line has been printed.
        ("ctrl_c()", "ctrl_c()", (130, "", "")),
        ("pass", "ctrl_c()", (1, "", "KeyboardInterrupt\n")),
    ],
    ids=["once", "twice", "twice, the second time at exit", "once, at exit"],
)
def test_ctrl_c(inside, after, expected):
    code = f"""
import os, signal, sys
from scenarios.endings import first_ctrl_c_unwinds
def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    print("still here")
# A shell that starts the tests in the background makes them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.excepthook = lambda kind, *_: print(kind.__name__, file=sys.stderr) or os._exit(1)
try:
  with first_ctrl_c_unwinds():
    {inside}
finally:
    {after or "pass"}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a=" + "[" * 5000 + "]" * 5000, "not a TOML file: it is nested too deeply"),
        ("seed = " + "9" * 5000, "not a TOML file: Exceeds the limit (4300 digits)"),
        (None, "expected a file, and this is a pipe or a device"),
    ],
)
def test_strange_scenarios(fedsim, tmp_path, content, message):
    if content is None:
        os.mkfifo(tmp_path / "x.toml")
    else:
        (tmp_path / "x.toml").write_text(content)
    done = fedsim("run", "x.toml")
    assert (done.status, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


def test_an_absurd_number_of_workers(fedsim, scenario_file):
    done = fedsim("run", scenario_file, "--workers", 99999999999)
    assert (done.status, done.stderr.count("\n")) == (2, 1)
    assert "99999999999 is not in the range" in done.stderr


def test_a_mistake_found_during_training_leaves_nothing(fedsim, scenario_file, tmp_path):
    done = fedsim(
        "run",
        scenario_file,
        "--set",
        'federation.participation={name="cohort",size=4}',
        "--set",
        'federation.aggregation={name="masked",largest_entry=1e-6}',
    )
    assert (done.status, done.stderr.count("\n")) == (2, 1)
    assert "lies outside ±largest_entry" in done.stderr
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_ray_that_does_not_start_leaves_nothing(fedsim, scenario_file, tmp_path, monkeypatch, command):
    def too_late(**_):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", too_late)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    if command == "run":
        done = fedsim("run", scenario_file, "--engine", "ray", "--out", "new")
    else:
        sweep = tmp_path / "sweep.toml"
        sweep.write_text(f'title = "Two"\nbase = "{scenario_file}"\n[vary]\nseed = [1, 2]\n')
        done = fedsim("sweep", sweep, "--ray", "--out", "new")
    assert (done.status, done.stderr.count("\n")) == (3, 1), done.stderr
    assert done.stderr.startswith("fedsim: Ray did not start in time: try again")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("error", ["LookupError('too many')", "SystemExit(0)"])
def test_a_custom_network_that_fails_in_training_is_the_users_to_mend(
    fedsim, scenario_file, tmp_path, monkeypatch, error
):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "failing_network", raising=False)
    (tmp_path / "failing_network.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, shape, outputs):\n"
        "        super().__init__()\n"
        "        self.last = nn.Linear(3 * 32 * 32, outputs)\n"
        "    def forward(self, x):\n"
        "        if len(x) > 2:\n"
        f"            raise {error}\n"
        "        return self.last(x.flatten(1))\n"
    )
    custom = "model={name='custom',factory='failing_network:Net'}"
    done = fedsim("run", scenario_file, "--set", custom)
    said = error.replace("('", ": ").replace("')", "").replace("(0)", ": 0")
    assert (done.status, done.stderr) == (2, f"fedsim: failing_network.py, line 8: {said}\n")
    assert not list((tmp_path / "runs").iterdir())


def test_local_dp_of_updates_that_are_zero(fedsim, scenario_file):
    defence = "defences=[{name='local_dp',norm=1.0,epsilon=10.0}]"
    done = fedsim("run", scenario_file, "--set", "clients.lr=1e-30", "--set", defence)
    assert done.status == 0, done.stderr


def npz(path, **changes):
    """An .npz of sums, whose only member's description was changed."""
    np.savez(path, aggregates=np.random.default_rng(0).normal(size=(8, 40)))
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        directory = archive.start_dir
    for offset, value in changes.items():
        at = {"flags": 8, "method": 10, "size": 24}[offset]
        content[directory + at : directory + at + len(value)] = value
        if offset != "size":
            content[at - 2 : at - 2 + len(value)] = value
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flags": b"\x01\x00"}, "encrypted"),
        ({"method": b"\x63\x00"}, "compression method is not supported"),
        ({"method": b"\x08\x00"}, ""),
        ({"method": b"\x0e\x00"}, ""),
        ({"size": (3 << 30).to_bytes(4, "little")}, "would take 3.2 GB"),
    ],
)
def test_damaged_archives_of_sums(fedsim, tmp_path, changes, message):
    npz(tmp_path / "sums.npz", **changes)
    done = fedsim("audit", "--aggregates", "sums.npz", "--out", "audit")
    assert (done.status, done.stderr.count("\n")) == (2, 1)
    assert "sums.npz: not a .npz file of sums: " in done.stderr
    assert message in done.stderr
    assert not (tmp_path / "audit").exists()


def test_parquet_with_two_columns_of_one_name(fedsim, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.Table.from_arrays([pyarrow.array([1.0, 2.0])] * 2, names=["a", "a"])
    parquet.write_table(table, tmp_path / "sums.parquet")
    done = fedsim("audit", "--aggregates", "sums.parquet", "--out", "audit")
    assert (done.status, done.stderr.count("\n")) == (2, 1)
    assert "two of its columns are called a" in done.stderr


@pytest.fixture
def folder_with_sums(tmp_path):
    np.save(tmp_path / "sums.npy", np.random.default_rng(0).normal(size=(8, 40)))
    return tmp_path


@pytest.mark.parametrize(
    ("counts", "status", "message"),
    [
        ("client,start,stop,count\n" + "7" * 5000 + ",0,8,3\n", 0, ""),
        ("client,start,stop,count,sd\na,0,8,3,1e-300\n", 2, "a standard deviation below 1e-06 is no error"),
        (
            "client,start,stop,count\n" + "7" * 5000 + ",0,x,3\n",
            2,
            "line 2: expected client,start,stop,count",
        ),
    ],
)
def test_strange_counts(fedsim, folder_with_sums, counts, status, message):
    (folder_with_sums / "counts.csv").write_text(counts)
    done = fedsim(
        *("audit", "--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "audit"),
        "--no-alternatives",
    )
    assert done.status == status, done.stderr
    assert message in done.stderr
    assert len(done.stderr) < 400


def test_an_audit_on_a_full_disk_leaves_nothing(fedsim, folder_with_sums, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "audit/result.json")

    monkeypatch.setattr("scenarios.audit.files.write_json", fail)
    done = fedsim("audit", "--aggregates", "sums.npy", "--out", "audit")
    assert (done.status, done.stderr) == (3, "fedsim: audit/result.json: No space left on device\n")
    assert not (folder_with_sums / "audit").exists()


@pytest.mark.parametrize(
    ("left", "status"),
    [
        ([".recovery.npz.17.fedsim-part"], 0),
        (["recovery.npz", "clients.csv", ".result.json.17.fedsim-part"], 0),
        (["recovery.npz", "clients.csv", "result.json", "report.html"], 2),
        (["clients.csv"], 2),
        (["recovery.npz", "notes.txt"], 2),
    ],
)
def test_an_audit_writes_over_what_a_killed_one_left_and_over_nothing_else(
    fedsim, folder_with_sums, left, status
):
    folder = folder_with_sums / "audit"
    folder.mkdir()
    for name in left:
        (folder / name).write_text("old")
    done = fedsim("audit", "--aggregates", "sums.npy", "--no-alternatives", "--out", "audit")
    assert done.status == status, done.stderr
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    if status:
        assert files == dict.fromkeys(left, b"old")
    else:
        assert set(files) == {"recovery.npz", "clients.csv", "result.json", "report.html"}
        assert b"old" not in files.values()


def test_an_audit_says_nobody_in_few_bytes(fedsim, folder_with_sums):
    done = fedsim("audit", "--aggregates", "sums.npy", "--out", "audit", "--clients", 20000)
    assert done.status == 0, done.stderr
    assert "separated     inconclusive; tried with 20000 clients (given)\n" in done.stdout
    assert sum(file.stat().st_size for file in (folder_with_sums / "audit").iterdir()) < 100_000


def test_an_audit_lists_clients_that_it_did_not_separate_without_their_updates(fedsim, folder_with_sums):
    counts = "client,start,stop,count\n" + "".join(f"c{k},0,8,{1 + k % 3}\n" for k in range(2000))
    (folder_with_sums / "counts.csv").write_text(counts)
    done = fedsim("audit", "--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "audit")
    assert done.status == 0, done.stderr
    assert "separated     inconclusive; tried with 2000 clients (counts)\n" in done.stdout
    assert (folder_with_sums / "audit/clients.csv").read_text().count("\n") == 2001
    assert (folder_with_sums / "audit/recovery.npz").stat().st_size < 10_000


@pytest.mark.parametrize("option", ["--aggregates", "--models", "--counts", "--cohort-sizes", "--layers"])
def test_a_pipe_in_place_of_a_file_of_an_audit(fedsim, folder_with_sums, option):
    os.mkfifo(folder_with_sums / "pipe")
    rows = () if option in ("--aggregates", "--models") else ("--aggregates", "sums.npy")
    done = fedsim("audit", *rows, "--out", "audit", option, "pipe")
    assert (done.status, done.stderr) == (
        2,
        "fedsim: pipe: expected a file, and this is a pipe or a device\n",
    )


def test_dollar_signs_in_a_picture_are_no_formula():
    from matplotlib.figure import Figure

    from scenarios.pages import embedded

    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 100], [1, 2], label=r"$\broken{$")
    axes.set_xscale("log")
    axes.set_yticks([1, 2], [r"$\no$", "b"])
    axes.legend()
    assert embedded(figure).startswith("data:image/png")
