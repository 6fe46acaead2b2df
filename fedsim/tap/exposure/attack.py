"""The attack on a recording, in a process of its own: `fedsim watch --once`.

A user's app may have packages of our names, and an attack may take minutes. So neither its imports nor its
work happen in the server's process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedsim

_PROGRAM = """
import os, sys, threading
os.nice(19)
sys.path.insert(0, sys.argv.pop(1))
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from fedsim.command import main
main()
"""
"""Our own packages come first, whatever folder the server was started in. The process ends with the server:
then nobody holds the other end of its input."""
SHARE = 0.1
"""Share of the time that attacks may take."""


@dataclass(frozen=True)
class Found:
    """What the attack claims after a number of `rounds`, and how many claims are `right` if that is known.

    `expected` is the number of right claims by the attack's own confidence.
    """

    rounds: int
    separated: int
    expected: float
    right: int | None
    verdict: str

    @property
    def exposed(self) -> float:
        """Clients that count as exposed."""
        return self.expected if self.right is None else self.right


class AttackProcess:
    """At most one attack at a time, and a tenth of the time at most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._began = self._created = time.monotonic()
        self._spent = 0.0

    def start(self) -> None:
        """Attack what is recorded by now, unless an attack is at work or attacks took too long already."""
        if self._process is not None or self._spent > SHARE * (time.monotonic() - self._created):
            return
        home = Path(fedsim.__file__).resolve().parents[1]
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(home), "watch", str(self._folder), "--once", "--json"],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> Found | str | None:
        """What the attack found, once; a line if it could not run; None as long as there is nothing new."""
        if self._process is None or self._process.poll() is None:
            return None
        process, self._process = self._process, None
        self._spent += time.monotonic() - self._began
        stdout, stderr = process.communicate()
        if process.returncode:
            return (stderr.strip().splitlines() or [f"status {process.returncode}"])[-1]
        return found_in(json.loads(stdout)["attack"])

    def end(self) -> None:
        """The training is over: an attack that is still at work is not waited for."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def found_in(content: dict[str, Any]) -> Found:
    """What `fedsim watch` printed about the attack."""
    return Found(**content)
