"""A scenario on Flower's deployment runtime: a server process, and a SuperNode for every client.

It is the app that `flwr run .` starts, on a SuperLink that lives as long as the run, or on one that is there.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import tomli_w
from flwr.cli.build import build_fab_from_files

from fedsim.core.errors import UserError
from fedsim.core.files import reading
from fedsim.core.progress import Progress, silent
from fedsim.core.version import installed_version
from fedsim.grids.superlink import SuperLink, private_superlink
from fedsim.records import rounds_recorded
from scenarios.run.directory import RunDirectory
from scenarios.run.flower_app import RunConfig
from scenarios.run.result import Result
from scenarios.run.runner import read_result
from scenarios.run.scenario import Scenario


def deploy(scenario: Scenario, directory: RunDirectory, *, training: Progress = silent) -> Result:
    """Run a scenario up to its report in an empty run directory; raise `RunFailedError` if the run fails."""
    with private_superlink(nodes=scenario.federation.clients) as superlink:
        _run(superlink, scenario, directory, training)
    return read_result(directory)


def deploy_on(
    superlink: SuperLink, scenario: Scenario, directory: RunDirectory, *, training: Progress = silent
) -> Result | None:
    """The same on a SuperLink that is there, with a SuperNode for every client.

    None if the SuperLink's machine keeps the run: then it has written nothing here.
    """
    _run(superlink, scenario, directory, training)
    return read_result(directory) if directory.is_finished else None


def _run(superlink: SuperLink, scenario: Scenario, directory: RunDirectory, training: Progress) -> None:
    """Submit the app and wait for its end. An interruption ends the run, too."""
    rounds = scenario.federation.rounds
    config = RunConfig(
        scenario=scenario.to_toml(), overrides="", out=str(directory.path.absolute()), force=False
    )
    run_id = superlink.submit(bundle(config))
    try:
        superlink.wait(run_id, meanwhile=lambda: training(rounds_recorded(directory.transcript), rounds))
    except (KeyboardInterrupt, SystemExit):
        superlink.stop(run_id)
        raise


def superlink_address(address: str) -> str:
    """The address, if it is HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--superlink {address}: expected HOST:PORT, such as 192.0.2.7:8000")
    return address


def certificates_in(path: Path) -> bytes:
    """The root certificates in a PEM file."""
    with reading(path, "a file of root certificates"):
        content = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii"))
        return content


def bundle(config: RunConfig) -> bytes:
    """The app of `pyproject.toml` as a Flower app bundle, with this run config as its default.

    It is built here because an installed package has no `pyproject.toml`.
    """
    app = {
        "publisher": "fedsim",
        "components": {
            "serverapp": "scenarios.run.flower_app:server_app",
            "clientapp": "scenarios.run.flower_app:client_app",
        },
        "config": config.model_dump(),
    }
    project = {"name": "fedsim", "version": installed_version()}
    content = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    fab, _ = build_fab_from_files({"pyproject.toml": content.encode()})
    return fab
