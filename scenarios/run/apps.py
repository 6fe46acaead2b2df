"""The two Flower apps of a scenario, the same for every engine."""

from __future__ import annotations

from functools import lru_cache

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from analytics.counters import answer_count_queries, counting_mod
from fedsim.devices.client import build_client_app
from fedsim.devices.trainer import Trainer
from fedsim.training.device import find_device
from fedsim.trusted.spool import Spool
from scenarios.run.scenario import parse_scenario
from scenarios.run.world import World


def trainer(world: World, workers: int = 1, spool: Spool | None = None) -> Trainer:
    """The trainer of a world's devices."""
    return Trainer(
        data=world.data,
        owned=world.owned,
        model=world.scenario.model,
        settings=world.scenario.clients,
        seed=world.scenario.seed,
        workers=workers,
        spool=spool,
        device=find_device(world.scenario.engine.device),
    )


def client_app(world: World, trainer: Trainer) -> ClientApp:
    """The devices' app: it trains, tells its client number, and counts and reports its participations."""
    app = build_client_app(
        trainer,
        world.scenario.federation.aggregation,
        defences=world.scenario.defences,
        mods=[counting_mod],
    )
    answer_count_queries(app)
    return app


class PortableClientApp(ClientApp):
    """The same app, as small as the text of its scenario: it builds its world in the process that runs it.

    For engines that send the app to other processes: a world with all its data would be too large to send.
    """

    def __init__(self, scenario: str) -> None:
        super().__init__()
        self._scenario = scenario

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message as the app of this process's world does."""
        return app_in_this_process(self._scenario)(message, context)


@lru_cache(maxsize=1)
def app_in_this_process(scenario: str) -> ClientApp:
    """The devices' app of the scenario with this text, built once for all devices of a process."""
    world = World.prepare(parse_scenario(scenario))
    return client_app(world, trainer(world))
