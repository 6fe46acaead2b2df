"""Removes the working folder of the attack process, also after the run was killed and can remove nothing.

It imports the standard library only, and works before the attack process imports anything else.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from contextlib import suppress

_PARENT_DEATH_SIGNAL = 1


def keep(folder: str) -> None:
    """Go on in a fork of this process. This process waits, and removes the folder once the fork has ended.

    The fork ends with this process, and on Linux both end with the process that started this one. Elsewhere
    they end when its end of the channel closes.
    """
    fork = os.fork()
    if fork == 0:
        die_with_parent()
        return

    def end(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(fork, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(signal.SIGTERM)
    os.waitpid(fork, 0)
    # Sessions of the fork are about to end, and may still write.
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Let this process get a signal when the one that started it ends, even if that one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, number)
