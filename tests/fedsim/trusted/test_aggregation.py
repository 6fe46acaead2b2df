"""Trusted aggregation and the inline engine: what reaches the server, and what cannot."""

import copy
import pickle

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedsim.core.errors import NotStartedError, UserError
from fedsim.flower import COHORT_SIZE, WEIGHT, client_number, enter_local_task, record_vector, vector_record
from fedsim.grids.inline import InlineGrid
from fedsim.server.strategy import server_strategy
from fedsim.server.wrapper import StrategyWrapper
from fedsim.trusted.aggregation import TrustedAggregation
from fedsim.trusted.diary import Diary, answer_diary_queries, diary_mod, read_diaries
from fedsim.trusted.fleet import discover
from fedsim.trusted.replies import ClientFailedError
from fedsim.trusted.summation import Ideal
from fedsim.trusted.truth import TruthRecorder
from tests.helpers.fleet import Fleet

DIM, CLIENTS = 3, 4
SCHEDULE = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)


def own_update(client):
    return np.array([1, 10**client, client], dtype=np.float32)


@pytest.fixture
def client_app():
    """Devices whose update is known beforehand."""
    app = ClientApp(mods=[diary_mod])
    answer_diary_queries(app)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        update = own_update(client_number(context))
        metrics = MetricRecord({WEIGHT: 5})
        return Message(RecordDict({"arrays": vector_record(update), "metrics": metrics}), reply_to=message)

    @app.query("identify")
    def identify(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"identity": MetricRecord({"client": client_number(context)})}), reply_to=message
        )

    return app


class Spy(StrategyWrapper):
    """Stands where an attacker stands and keeps everything it is given."""

    def __init__(self, inner):
        super().__init__(inner)
        self.grids, self.replies = [], []

    def configure_train(self, server_round, arrays, config, grid):
        self.grids.append(grid)
        return self.inner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.replies.append(replies)
        return self.inner.aggregate_train(server_round, replies)


@pytest.fixture
def run(client_app):
    def start(server_model, app=client_app):
        enter_local_task()
        spy = Spy(server_strategy(server_model))
        truth = TruthRecorder(len(SCHEDULE), CLIENTS, DIM)
        trusted = TrustedAggregation(spy, schedule=SCHEDULE, aggregation=Ideal(), truth=truth)
        initial = vector_record(np.zeros(DIM, dtype=np.float32))
        grid = InlineGrid(app, CLIENTS)
        result = trusted.start(grid, initial, num_rounds=len(SCHEDULE))
        return spy, truth.truth(read_diaries(grid)), result

    return start


def test_the_inner_strategy_gets_one_sum_per_round(run):
    spy, _, _ = run("fixed")
    assert [len(replies) for replies in spy.replies] == [1, 1, 1]
    sums = [record_vector(replies[0]) for replies in spy.replies]
    np.testing.assert_array_equal(sums, [[2, 101, 2], [0, 0, 0], [4, 1111, 6]])
    metrics = [replies[0].content["metrics"] for replies in spy.replies]
    assert [m[COHORT_SIZE] for m in metrics] == [2, 0, 4]
    assert [m[WEIGHT] for m in metrics] == [10, 0, 20]


def test_the_inner_strategy_cannot_tell_or_reach_clients(run):
    spy, _, _ = run("fixed")
    assert len({replies[0].metadata.src_node_id for replies in spy.replies}) == 1
    for grid in spy.grids:
        assert list(grid.get_node_ids()) == [1]
        for forbidden in (grid.send_and_receive, grid.push_messages, grid.pull_messages):
            with pytest.raises(PermissionError):
                forbidden([])
        with pytest.raises(PermissionError):
            _ = grid.run


def test_truth_is_recorded(run):
    _, truth, _ = run("fixed")
    np.testing.assert_array_equal(truth.participation, SCHEDULE)
    np.testing.assert_allclose(truth.updates, [own_update(k) for k in range(CLIENTS)])


def test_a_fixed_model_stays_and_an_updated_one_follows_the_mean(run):
    _, _, fixed = run("fixed")
    assert not fixed.arrays
    _, _, updated = run("updated")
    expected = own_update(0) / 2 + own_update(2) / 2 + sum(own_update(k) for k in range(CLIENTS)) / 4
    np.testing.assert_allclose(updated.arrays["parameters"].numpy(), expected, rtol=1e-6)


def test_a_client_that_never_takes_part_has_no_update():
    recorder = TruthRecorder(2, 2, DIM)
    recorder.record(0, [1])
    truth = recorder.truth([Diary(0, 0, None), Diary(1, 1, own_update(1))])
    assert np.isnan(truth.updates[0]).all()
    np.testing.assert_array_equal(truth.updates[1], own_update(1))


def test_a_diary_that_disagrees_with_the_sums_is_a_fault():
    recorder = TruthRecorder(2, 1, DIM)
    recorder.record(0, [0])
    with pytest.raises(RuntimeError, match="client 0 sent 2 updates, the sums hold 1"):
        recorder.truth([Diary(0, 2, own_update(0))])


def test_an_error_reply_is_not_an_empty_round(run, client_app):
    from flwr.app import Error

    app = ClientApp()
    app.query("identify")(client_app._registered_funcs["query.identify"])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(Error(code=0, reason="battery"), reply_to=message)

    with pytest.raises(ClientFailedError, match="battery"):
        run("fixed", app)


def test_too_few_nodes_is_an_error_that_says_what_to_do(client_app, monkeypatch):
    monkeypatch.setattr("fedsim.grids.nodes.CONNECT_LIMIT_S", -1)
    with pytest.raises(NotStartedError, match=r"2 nodes are connected.*num-supernodes=3"):
        discover(InlineGrid(client_app, clients=2), clients=3)


def test_push_and_pull_deliver_each_reply_once(client_app):
    enter_local_task()
    grid = InlineGrid(client_app, CLIENTS)
    ids = grid.push_messages([Message(RecordDict(), node, "query.identify") for node in grid.get_node_ids()])
    assert len(list(grid.pull_messages(ids))) == CLIENTS
    assert list(grid.pull_messages(ids)) == []


def test_sums_do_not_depend_on_the_order_of_replies():
    rng = np.random.default_rng(0)
    updates = [rng.normal(size=1000).astype(np.float32) * 10.0**k for k in range(6)]
    fleet = Fleet(updates=updates)
    summing = fleet.summation.open_round(fleet.invitation())
    replies = list(fleet.grid.send_and_receive(summing.messages))
    forwards, backwards = summing.close(replies), summing.close(replies[::-1])
    np.testing.assert_array_equal(forwards.total, backwards.total)
    assert forwards.members == backwards.members


def test_the_server_runs_flowers_own_fedavg():
    strategy = server_strategy("updated")
    assert isinstance(strategy, StrategyWrapper)
    assert isinstance(strategy.inner, FedAvg)


def test_vectors_travel_as_ordinary_arrays():
    """Within a process a vector is kept as it is; whoever asks for bytes, or packs it, gets Flower's own."""
    vector = np.arange(5, dtype=np.float32)
    lazy, ordinary = vector_record(vector)["parameters"], Array(vector)
    assert (lazy.dtype, lazy.shape, lazy.stype, lazy.data) == (
        ordinary.dtype,
        ordinary.shape,
        ordinary.stype,
        ordinary.data,
    )
    assert lazy.object_id == ordinary.object_id
    for copied in (pickle.loads(pickle.dumps(lazy)), copy.deepcopy(lazy)):
        assert type(copied) is Array
        assert copied == ordinary
    with pytest.raises(ValueError, match="read-only"):
        lazy.numpy()[0] = 1


def test_a_strategy_that_waits_for_more_nodes_is_told_why(client_app, monkeypatch):
    """Flower's FedAvg waits for two nodes by default, and the cohort is one."""
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    enter_local_task()
    truth = TruthRecorder(len(SCHEDULE), CLIENTS, DIM)
    trusted = TrustedAggregation(FedAvg(), schedule=SCHEDULE, aggregation=Ideal(), truth=truth)
    with pytest.raises(UserError, match="min_train_nodes=1 and min_available_nodes=1"):
        trusted.start(InlineGrid(client_app, CLIENTS), vector_record(np.zeros(DIM, dtype=np.float32)))


def test_every_device_gets_records_of_its_own():
    """Strategies send the same records to all nodes; a device that changes them changes nobody else's."""
    enter_local_task()
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config = message.content.config_records["config"]
        heard = ConfigRecord(dict(config))
        config["touched"] = 1
        del message.content["arrays"]
        return Message(RecordDict({"heard": heard}), reply_to=message)

    grid = InlineGrid(app, CLIENTS)
    content = RecordDict({"arrays": vector_record(np.zeros(1, np.float32)), "config": ConfigRecord({"a": 1})})
    calls = [Message(content, node, "train") for node in grid.get_node_ids()]
    assert [dict(reply.content["heard"]) for reply in grid.send_and_receive(calls)] == [{"a": 1}] * CLIENTS
    assert set(content) == {"arrays", "config"}
