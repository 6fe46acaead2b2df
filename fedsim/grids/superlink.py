"""Flower's own server: a SuperLink on this machine that is private to one run, or one that is there already.

Every private process listens on a free port of the loopback interface and has its own folder as its Flower
home. So it shares nothing with other SuperLinks on this machine. Nothing needs the internet: telemetry,
update checks and the installation of dependencies are off.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.common.constant import Status, SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StopRunRequest, StreamLogsRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedsim.core.errors import ProcessLostError, RunFailedError

_LOOPBACK = "127.0.0.1"
_START_LIMIT_S = 120
_STOP_LIMIT_S = 5
_ANSWER_LIMIT_S = 10
_STATUS_POLL_S = 0.5
_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink that accepts app bundles and reports how their runs ended."""

    address: str
    logs: Path
    """The folder that keeps the logs of all processes if a run fails."""
    processes: dict[str, subprocess.Popen[bytes]]
    """The processes that must stay alive during a run, by name."""
    certificates: bytes | None = None
    """Root certificates of an encrypted connection; None: the connection is not encrypted."""

    def submit(self, bundle: bytes) -> int:
        """Start a run of an app bundle; return the number of the run."""
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        with self._control() as control:
            run_id: int = control.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id
        return run_id

    def wait(self, run_id: int, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Return once the run has completed; raise `RunFailedError` with the reason if it ends otherwise.

        `meanwhile` is called at every poll.
        """
        with self._control() as control:
            while True:
                runs = control.ListRuns(ListRunsRequest(run_id=run_id)).run_dict
                status = run_from_proto(runs[run_id]).status
                if status.status == Status.FINISHED:
                    break
                self._check_processes()
                meanwhile()
                time.sleep(_STATUS_POLL_S)
            if status.sub_status != SubStatus.COMPLETED:
                # Only the SuperLink has the output of the server's process.
                parts = control.StreamLogs(StreamLogsRequest(run_id=run_id))
                (self.logs / "serverapp.log").write_text("".join(part.log_output for part in parts))
                raise RunFailedError(f"the run {status.sub_status}: {status.details or 'no reason given'}")

    def stop(self, run_id: int) -> None:
        """End a run."""
        with self._control() as control:
            control.StopRun(StopRunRequest(run_id=run_id))

    def wait_until_healthy(self) -> None:
        """Return once the SuperLink answers."""
        for _ in range(int(_START_LIMIT_S / _STATUS_POLL_S)):
            self._check_processes()
            if not self.silence(_STATUS_POLL_S):
                return
            time.sleep(_STATUS_POLL_S)
        raise RunFailedError(f"the SuperLink does not answer after {_START_LIMIT_S} s")

    def silence(self, limit_s: float) -> str:
        """Why nobody answers within so many seconds; empty if a SuperLink does."""
        scheme, verify = (
            ("http", False) if self.certificates is None else ("https", _trusting(self.certificates))
        )
        try:
            # Proxies are for the internet.
            with httpx.Client(verify=verify, timeout=limit_s, trust_env=False) as client:
                answer = client.get(f"{scheme}://{self.address}/health")
        except httpx.TransportError as error:
            return str(error) or type(error).__name__
        return "" if answer.is_success else f"status {answer.status_code}, so this is no SuperLink"

    def _check_processes(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise ProcessLostError(f"{name} ended with status {process.returncode} during the run")

    @contextmanager
    def _control(self) -> Iterator[ControlHttpClient]:
        control = ControlHttpClient.from_server_address(
            self.address,
            insecure=self.certificates is None,
            root_certificates=self.certificates,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="fedsim")],
        )
        try:
            yield control
        except httpx.HTTPError as error:
            raise RunFailedError(f"the SuperLink does not serve: {error}") from error
        finally:
            control.close()


@contextmanager
def private_superlink(*, nodes: int) -> Iterator[SuperLink]:
    """A SuperLink with this number of SuperNodes, numbered by partition; 0: it simulates its nodes on Ray.

    All processes end with the block. If a run fails, the logs are kept, and the error names their folder.
    """
    _without_proxy(_LOOPBACK)
    home = Path(tempfile.mkdtemp(prefix="fedsim-"))
    port, *node_ports = _free_ports(1 + nodes)
    address = f"{_LOOPBACK}:{port}"
    try:
        with ExitStack() as stack:
            superlink = _start(
                home / "superlink",
                *("flower-superlink", "--insecure", "--host", _LOOPBACK, "--port", str(port)),
                *(["--simulation"] if nodes == 0 else []),
            )
            stack.callback(_stop, [superlink])
            link = SuperLink(address, home, {"superlink": superlink})
            link.wait_until_healthy()
            # The nodes end first, all at once, because each of them signs off from the SuperLink.
            supernodes: list[subprocess.Popen[bytes]] = []
            stack.callback(_stop, supernodes)
            for node, node_port in enumerate(node_ports):
                name = f"supernode-{node}"
                supernode = _start(
                    home / name,
                    *("flower-supernode", "--insecure", "--superlink", address),
                    *("--host", _LOOPBACK, "--port", str(node_port)),
                    *("--node-config", f"partition-id={node} num-partitions={nodes}"),
                )
                supernodes.append(supernode)
                link.processes[name] = supernode
            yield link
    except RunFailedError as error:
        raise type(error)(f"{error} (logs: {home}/*.log)") from error
    except BaseException:
        _remove(home)
        raise
    _remove(home)


@contextmanager
def existing_superlink(address: str, certificates: bytes | None = None) -> Iterator[SuperLink]:
    """A SuperLink that somebody else runs, with the SuperNodes that are connected to it; it stays as it is.

    A `RunFailedError` within seconds if no SuperLink answers. If a run fails, the log of its server is kept,
    and the error names the folder.
    """
    host = address.rpartition(":")[0]
    _without_proxy(host)
    logs = Path(tempfile.mkdtemp(prefix="fedsim-"))
    link = SuperLink(address, logs, {}, certificates)
    try:
        if reason := link.silence(_ANSWER_LIMIT_S):
            raise RunFailedError(f"--superlink {address}: no SuperLink answers there: {reason}")
        yield link
    except RunFailedError as error:
        if any(logs.iterdir()):
            raise RunFailedError(f"{error} (logs: {logs}/*.log)") from error
        raise
    finally:
        if not any(logs.iterdir()):
            logs.rmdir()


def _without_proxy(host: str) -> None:
    """A proxy for the internet must not handle the traffic to this host."""
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(
        filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), host))
    )


def _trusting(certificates: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificates.decode("ascii"))
    return context


def _remove(home: Path) -> None:
    """Remove the Flower homes; a task process that is about to end may still hold a file there."""
    shutil.rmtree(home, ignore_errors=True)


def _start(home: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start a process with its own Flower home, and a log file beside it."""
    home.mkdir()
    path = os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), os.environ.get("PATH"))))
    with home.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **_OFFLINE, "FLWR_HOME": str(home), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C reaches only fedsim, which then ends the other processes with their groups.
            start_new_session=True,
        )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes and their children.

    A SuperLink's task processes have their own groups; they watch their parents and end with them.
    """
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_LIMIT_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _free_ports(number: int) -> list[int]:
    """Free ports; all are reserved until the last is drawn, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
