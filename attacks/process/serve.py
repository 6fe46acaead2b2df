"""The attack process itself: confined once, then one forked session for every attack.

A session is a fork of a process that has seen nothing but its imports. It answers requests until its channel
closes, and nothing that it saw reaches another session.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import socket
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import NotFiniteError, ProblemError
from attacks.disaggregation.noise.stretch_misfits import compile_stretch_misfits
from attacks.process.channel import Channel, Kind, packed
from attacks.process.keeper import die_with_parent
from attacks.process.requests import Request, Session
from fedsim.core.confinement import confine
from fedsim.core.errors import UserError
from fedsim.core.users_code import fault_of_users_code

_COMMON_MODULES = ("scipy.optimize",)
"""Large modules that solvers import when they are called: otherwise every session would import them anew."""


@dataclass(frozen=True)
class Start:
    """How the process begins: what it may open, and which modules it imports ahead of the first request."""

    listable: Sequence[Path]
    readable: Sequence[Path]
    writable: Sequence[Path]
    modules: Sequence[str]


def main(descriptor: int) -> None:
    """Serve sessions on an inherited socket until the other end closes it."""
    channel = Channel(socket.socket(fileno=descriptor))
    # Confined, it could not keep what it compiles, and would compile it in every run.
    compile_stretch_misfits()
    message = channel.receive()
    if message is None:
        return
    start: Start = pickle.loads(message.payload)
    confinement = confine(listable=start.listable, readable=start.readable, writable=start.writable)
    for module in (*_COMMON_MODULES, *start.modules):
        importlib.import_module(module)
    with suppress(BrokenPipeError):  # the run ended before there was anything to attack
        channel.send(Kind.REPLY, packed({}, {"confinement": confinement}))
    # Sessions that end leave nothing to collect.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (message := channel.receive()) is not None:
        (end,) = message.files
        if os.fork():
            os.close(end)
            continue
        channel.close()
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _serve(Channel(socket.socket(fileno=end)))
        os._exit(0)


def _serve(channel: Channel) -> None:
    """Answer the requests of one session."""
    session = Session()

    def watch(done: int, total: int, preview: NDArray[np.float32] | None = None) -> None:
        arrays = {} if preview is None else {"preview": preview}
        channel.send(Kind.PROGRESS, packed(arrays, {"done": done, "total": total}))

    while (message := channel.receive()) is not None:
        before = _cpu_seconds()
        try:
            request: Request = pickle.loads(message.payload)
            arrays, values = request.answer(session, message.files, watch)
            channel.send(Kind.REPLY, packed(arrays, {**values, "cpu_seconds": _cpu_seconds() - before}))
        except BrokenPipeError:
            return
        except (ProblemError, UserError, MemoryError) as error:
            channel.send(Kind.MISTAKE, packed({}, _described(error)))
        except BaseException as error:  # The side that asked raises it again.
            if (blame := fault_of_users_code(error)) is not None:
                channel.send(Kind.MISTAKE, packed({}, _described(UserError(blame))))
                continue
            channel.send(Kind.FAULT, packed({}, {"message": traceback.format_exc()}))


def _described(error: ProblemError | UserError | MemoryError) -> dict[str, Any]:
    """What the other side needs to raise the same error."""
    match error:
        case NotFiniteError():
            return {"error": "not finite", "message": str(error), "row": error.row}
        case ProblemError():
            return {"error": "problem", "message": str(error)}
        case UserError():
            return {"error": "user", "message": str(error)}
        case _:
            return {"error": "memory", "message": str(error)}


def _cpu_seconds() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
