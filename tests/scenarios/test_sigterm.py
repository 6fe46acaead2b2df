"""SIGTERM ends a run in good order on every engine: one line, status 143, no process left."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARK = "FEDSIM_TEST_MARK"
LIMIT_S = 60
# Few messages, because Ray and SuperNodes take their time, and more rounds than anybody waits for.
LONG = [
    "--set",
    "federation.rounds=100000",
    "--set",
    "federation.clients=3",
    "--set",
    "attack.solver=projection",
]


def marked(mark):
    """The processes that inherited the mark, by number: their command lines."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ")
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
    return {number: command for number, command in found.items() if command}


@pytest.fixture
def short_folder():
    """Sockets of Ray have paths of at most 107 bytes, and pytest's own folders take most of them."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        pytest.param(["run", "--engine", "ray"], marks=pytest.mark.slow),
        pytest.param(["deploy"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_sigterm_ends_a_run(command, scenario_file, tmp_path, short_folder):
    mark = uuid.uuid4().hex
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from fedsim.command import main; main()"
    arguments = [command[0], str(scenario_file), *command[1:], "--out", str(tmp_path / "run"), *LONG]
    environment = {**os.environ, MARK: mark, "PYTHONPATH": str(ROOT), "TMPDIR": short_folder}
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        rounds = tmp_path / "run/transcript/rounds.csv"
        while running.poll() is None and not (rounds.exists() and rounds.read_text().count("\n") > 1):
            pass
        running.send_signal(signal.SIGTERM)
        _, stderr = running.communicate()
    assert running.returncode == 128 + signal.SIGTERM, stderr
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith("fedsim: terminated; ")
    assert ("--resume" if command == ["run"] else "--force") in stderr
    # Processes that were told to end may take a moment to disappear.
    for number in marked(mark):
        with suppress(ProcessLookupError):
            ended = os.pidfd_open(number)
            select.select([ended], [], [], LIMIT_S)
            os.close(ended)
    assert not marked(mark)
