"""A scenario on Flower's deployment runtime: a server process, and a SuperNode for every client.

It is the app that `flwr run .` starts, on a SuperLink that lives as long as the run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tomli_w
from flwr.cli.build import build_fab_from_files

from fedsim.core.progress import Progress, silent
from fedsim.core.version import installed_version
from fedsim.grids.superlink import private_superlink
from fedsim.records import rounds_recorded
from scenarios.run.directory import RunDirectory
from scenarios.run.flower_app import RunConfig
from scenarios.run.result import Result
from scenarios.run.runner import read_result
from scenarios.run.scenario import Scenario


def deploy(scenario: Scenario, directory: RunDirectory, *, training: Progress = silent) -> Result:
    """Run a scenario up to its report in an empty run directory; raise `RunFailedError` if the run fails."""
    rounds = scenario.federation.rounds
    with tempfile.TemporaryDirectory(prefix="fedsim-") as folder:
        file = Path(folder) / "scenario.toml"
        file.write_text(scenario.to_toml(), encoding="utf-8")
        config = RunConfig(scenario=str(file), overrides="", out=str(directory.path.absolute()), force=False)
        with private_superlink(nodes=scenario.federation.clients) as superlink:
            run_id = superlink.submit(bundle(config))
            superlink.wait(run_id, meanwhile=lambda: training(rounds_recorded(directory.transcript), rounds))
    return read_result(directory)


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
