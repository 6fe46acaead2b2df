"""The process of the attacks leaves neither processes nor a folder, whoever is killed."""

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIMIT_S = 60
# It imports, as a run does, tells who it is, and waits to be killed.
PROGRAM = """
from scenarios.run.attack_process import AttackProcess, Access
attack = AttackProcess(Access.without())
attack.confinement
print(attack._started.process.pid, flush=True)
input()
"""


def child_of(process):
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


def wait_for_the_end_of(watched):
    ended, _, _ = select.select([watched], [], [], LIMIT_S)
    assert ended


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("killed", ["run", "keeper", "attack", "nobody"])
def test_neither_a_process_nor_a_folder_is_left(killed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        keeper = int(run.stdout.readline())
        numbers = {"run": run.pid, "keeper": keeper, "attack": child_of(keeper)}
        assert [folder.name.startswith("fedsim-attack-") for folder in tmp_path.iterdir()] == [True]
        with ExitStack() as stack:
            watched = {name: os.pidfd_open(number) for name, number in numbers.items()}
            for descriptor in watched.values():
                stack.callback(os.close, descriptor)
            if killed in numbers:
                signal.pidfd_send_signal(watched[killed], signal.SIGKILL)
                wait_for_the_end_of(watched["keeper"])
                wait_for_the_end_of(watched["attack"])
            if killed == "attack":
                # The run goes on, and the folder is gone all the same.
                assert not list(tmp_path.iterdir())
            run.communicate("\n")
            for descriptor in watched.values():
                wait_for_the_end_of(descriptor)
    assert not list(tmp_path.iterdir())
