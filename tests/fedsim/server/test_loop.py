"""The loop over rounds: its numbers, its hooks, and what they remember."""

import numpy as np
from flwr.app import MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy

from fedsim.flower import parameters_of, vector_record
from fedsim.grids.inline import InlineGrid
from fedsim.server.hooks import RoundHook
from fedsim.server.loop import RoundLoop
from fedsim.server.resuming import Stateless


class Adds(Stateless, Strategy):
    """Adds the number of the round to its model, and nothing in round 2."""

    def __init__(self):
        self.rounds = []

    def configure_train(self, server_round, arrays, config, grid):
        self.model = parameters_of(arrays)
        return []

    def aggregate_train(self, server_round, replies):
        self.rounds.append(server_round)
        return (None if server_round == 2 else vector_record(self.model + np.float32(server_round))), None

    def configure_evaluate(self, server_round, arrays, config, grid):
        return []

    def aggregate_evaluate(self, server_round, replies):
        return None

    def summary(self):
        pass


NO_DEVICES = InlineGrid(ClientApp(), clients=0)


class Curve(RoundHook):
    """A hook with a memory, as a training curve has one."""

    def __init__(self):
        self.points = {}

    def on_start(self, done, model):
        self.points[done] = float(model[0])

    def after_round(self, done, model):
        self.points[done] = float(model[0])

    def state(self):
        return RecordDict({"curve": MetricRecord({str(done): point for done, point in self.points.items()})})

    def load_state(self, state):
        self.points = {int(done): point for done, point in state.metric_records["curve"].items()}


START = np.zeros(1, dtype=np.float32)


def test_hooks_see_the_model_before_the_first_round_and_after_each():
    curve = Curve()
    loop = RoundLoop(Adds(), START, hooks=[curve])
    loop.run(NO_DEVICES, until=3)
    assert curve.points == {0: 0, 1: 1, 2: 1, 3: 4}
    assert loop.model.tolist() == [4]


def test_a_continued_loop_counts_on_and_its_hooks_remember():
    curve = Curve()
    first = RoundLoop(Adds(), START, hooks=[curve])
    first.run(NO_DEVICES, until=2)
    strategy, later = Adds(), Curve()
    second = RoundLoop(strategy, first.model, done=2, hooks=[later])
    second.load_state(first.state())
    second.run(NO_DEVICES, until=4)
    assert strategy.rounds == [3, 4]
    assert later.points == {0: 0, 1: 1, 2: 1, 3: 4, 4: 8}


def test_a_loop_without_rounds_left_tells_its_hooks_where_it_stands():
    curve = Curve()
    RoundLoop(Adds(), np.ones(1, dtype=np.float32), done=5, hooks=[curve]).run(NO_DEVICES, until=5)
    assert curve.points == {5: 1}


def test_hooks_are_called_in_order():
    calls = []

    class Noting(RoundHook):
        def __init__(self, name):
            self.name = name

        def after_round(self, done, model):
            calls.append((done, self.name))

    RoundLoop(Adds(), START, hooks=[Noting("a"), Noting("b")]).run(NO_DEVICES, until=2)
    assert calls == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
