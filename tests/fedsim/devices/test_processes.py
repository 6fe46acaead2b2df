import mmap
import os
import signal

import numpy as np
import pytest

from fedsim.core.errors import ProcessLostError, RunFailedError
from fedsim.devices.processes import ForkedProcesses


def shared(size):
    return np.frombuffer(mmap.mmap(-1, 8 * size), dtype=np.int64)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_tasks_are_done_in_as_many_processes(size):
    done = shared(5)

    def work(task):
        done[task] = os.getpid()

    workers: ForkedProcesses[int] = ForkedProcesses(size, work)
    for _ in range(2):
        done[:] = 0
        workers.run(range(5))
        assert len(set(done.tolist())) == size
        assert done.all()
    workers.close()


def test_what_the_first_task_leaves_behind_is_inherited():
    known, found = set(), shared(3)

    def work(task):
        known.add(task)
        found[task] = len(known)

    workers: ForkedProcesses[int] = ForkedProcesses(3, work)
    workers.run(range(3))
    workers.close()
    assert found.tolist() == [1, 2, 2]


def test_one_task_needs_no_other_process():
    done = shared(1)
    workers: ForkedProcesses[int] = ForkedProcesses(4, lambda task: done.__setitem__(task, os.getpid()))
    workers.run([0])
    assert done[0] == os.getpid()
    assert not workers._pipes


def test_no_task_is_fine():
    ForkedProcesses(2, print).run([])


def test_a_fault_in_a_worker_is_raised_here():
    parent = os.getpid()

    def work(task):
        if os.getpid() != parent:
            raise ValueError(f"task {task} is impossible")

    workers: ForkedProcesses[int] = ForkedProcesses(2, work)
    with pytest.raises(RuntimeError, match=r"(?s)worker process failed.*ValueError: task 1 is impossible"):
        workers.run(range(2))
    workers.close()


@pytest.mark.parametrize("between_tasks", [True, False])
def test_a_worker_that_is_killed_is_one_line(between_tasks):
    parent, pids = os.getpid(), shared(2)

    def work(task):
        pids[task] = os.getpid()
        if os.getpid() != parent and not between_tasks:
            os.kill(os.getpid(), signal.SIGKILL)

    workers: ForkedProcesses[int] = ForkedProcesses(2, work)
    with pytest.raises(ProcessLostError, match="a worker process was killed by signal 9"):
        workers.run(range(2))
        os.kill(pids[1], signal.SIGKILL)
        os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)
        workers.run(range(2))
    workers.close()


def test_an_error_of_one_line_in_a_worker_stays_one():
    parent = os.getpid()

    def work(task):
        if os.getpid() != parent:
            raise RunFailedError(f"task {task} came to nothing")

    workers: ForkedProcesses[int] = ForkedProcesses(2, work)
    with pytest.raises(RunFailedError, match=r"^task 1 came to nothing$"):
        workers.run(range(2))
    workers.close()


def test_workers_end_when_they_are_dismissed():
    pids = shared(3)
    workers: ForkedProcesses[int] = ForkedProcesses(3, lambda task: pids.__setitem__(task, os.getpid()))
    workers.run(range(3))
    workers.close()
    for pid in set(pids.tolist()) - {os.getpid()}:
        os.waitpid(pid, 0)  # returns once the process has ended, and a process that lived on would hang here
