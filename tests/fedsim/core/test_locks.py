"""One process at a time works in a folder, and a lock ends with its process."""

import os
import signal

import pytest

from fedsim.core.errors import UserError
from fedsim.core.locks import LOCK_FILE, alone_in


def in_child(action):
    """The exit status of a forked process: 3 if it was refused the folder."""
    if (child := os.fork()) == 0:
        try:
            action()
        except UserError as error:
            os._exit(3 if "another process is working there" in str(error) else 4)
        except BaseException:
            os._exit(5)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def enter(folder):
    with alone_in(folder):
        pass


def test_another_process_and_another_block_are_refused(tmp_path):
    with alone_in(tmp_path):
        assert in_child(lambda: enter(tmp_path)) == 3
        with pytest.raises(UserError, match="another process is working there"):
            enter(tmp_path)
        assert in_child(lambda: enter(tmp_path)) == 3
    assert in_child(lambda: enter(tmp_path)) == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_process_leaves_no_lock(tmp_path):
    def die():
        with alone_in(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    assert (tmp_path / LOCK_FILE).exists()
    with alone_in(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_forked_worker_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    reading, writing = os.pipe()

    def parent():
        with alone_in(tmp_path):
            if os.fork() == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(parent) == -signal.SIGKILL
    enter(tmp_path)
    os.close(writing)
    os.close(reading)


def test_a_folder_is_created_only_if_asked(tmp_path):
    with alone_in(tmp_path / "a/b"):
        assert not (tmp_path / "a").exists()
    with alone_in(tmp_path / "a/b", create=True):
        assert (tmp_path / "a/b").is_dir()
