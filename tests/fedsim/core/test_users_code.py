"""Who is to blame for an exception."""

import signal
import sys
from types import ModuleType

import pytest

from fedsim.core.users_code import fault_of_users_code, mark_as_users

CODE = """
import signal, sys
def exits():
    sys.exit(0)
def is_ended():
    signal.raise_signal(signal.SIGTERM)
"""


@pytest.fixture
def users(monkeypatch):
    module = ModuleType("users")
    module.__file__ = "/users.py"
    exec(compile(CODE, module.__file__, "exec"), module.__dict__)
    monkeypatch.setattr("fedsim.core.users_code._files", set())
    mark_as_users(module)
    return module


def test_code_that_calls_exit_is_to_blame(users):
    with pytest.raises(SystemExit) as caught:
        users.exits()
    assert fault_of_users_code(caught.value) == "users.py, line 4: SystemExit: 0"


def test_code_that_a_signal_ends_is_not(users):
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with pytest.raises(SystemExit) as caught:
            users.is_ended()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert fault_of_users_code(caught.value) is None
