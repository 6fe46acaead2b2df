"""A scenario as an ordinary Flower app: `flwr run .` starts it, on any of Flower's runtimes.

`[tool.flwr.app]` in `pyproject.toml` names the two apps below. Server and devices live in processes that
know only the run config, so each builds its world from the scenario named there. Heavy modules are imported
inside functions, because Flower starts a new process for every message to a device.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsim.core.settings import Settings
from scenarios.run.scenario import Scenario, find_scenario, load_scenario, parse_scenario


class RunConfig(Settings):
    """The run config of the app: the same choices as the options of `fedsim run`."""

    scenario: str
    """A TOML file, or a name from the library; the server and every device read the file. Or the text of a
    scenario, of several lines."""
    overrides: str
    """`KEY=VALUE` settings, separated by semicolons."""
    out: str
    """The folder that the server writes the run to; `runs/NAME` if empty."""
    force: bool
    """Replace the run that the folder holds."""

    @classmethod
    def of(cls, context: Context) -> RunConfig:
        """The run config that Flower gave to this process."""
        return cls.model_validate(context.run_config)

    def load(self) -> Scenario:
        """The scenario, with its overrides."""
        if "\n" in self.scenario:
            return parse_scenario(self.scenario)
        overrides = [override.strip() for override in self.overrides.split(";") if override.strip()]
        return load_scenario(find_scenario(self.scenario), overrides)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return Path(self.out or Path("runs") / find_scenario(self.scenario).stem)


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Simulate, attack, score and report, as `fedsim run` does."""
    from fedsim.core.locks import alone_in
    from scenarios.run.directory import RunDirectory
    from scenarios.run.engines import GivenGrid
    from scenarios.run.runner import run_scenario
    from scenarios.run.world import World

    config = RunConfig.of(context)
    world = World.prepare(config.load())
    with alone_in(config.folder, create=True):
        directory = RunDirectory.create(config.folder, replace=config.force)
        with directory.kept_unless_refused():
            run_scenario(world, directory, engine=GivenGrid(grid))


class _DeviceApp(ClientApp):
    """Answers a message as the devices' app of the run config's scenario."""

    def __call__(self, message: Message, context: Context) -> Message:
        from scenarios.run.apps import app_in_this_process

        return app_in_this_process(RunConfig.of(context).load().to_toml())(message, context)


client_app = _DeviceApp()
