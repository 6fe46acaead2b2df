"""Messages of Flower's simulation, found by node."""

import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import HEARTBEAT_INTERVAL_INF, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from fedsim.flower import enter_local_task
from fedsim.grids.inline import InlineGrid
from fedsim.grids.mailboxes import with_mailboxes


@pytest.fixture
def grid():
    """The grid of a simulation with three nodes, as Flower makes it."""
    enter_local_task()
    states = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
    state, run = states.state(), Run.create_empty(run_id=1)
    assert isinstance(state, InMemoryLinkState)
    run.primary_task_id, run.federation_id = 1, NOOP_FEDERATION_ID
    state.run_ids[run.run_id] = RunRecord(run=run)
    state.task_store[1] = Task(task_id=1, run_id=1)
    for key in (b"first", b"second", b"third"):
        node = state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_INTERVAL_INF)
        state.acknowledge_node_heartbeat(node, HEARTBEAT_INTERVAL_INF)
    grid = InMemoryGrid(states)
    grid.set_run(run)
    return grid


def found(grid, node, limit=1):
    return [message.metadata.message_id for message in grid.state.get_message_ins(node, limit)]


def test_the_runtime_finds_what_it_found_before(grid):
    first, second, third = nodes = sorted(grid.get_node_ids())
    plain, ours = [
        (pushed, {node: [found(each, node) for _ in range(3)] for node in nodes})
        for each in (grid, with_mailboxes(grid))
        for pushed in [
            list(each.push_messages([Message(RecordDict(), n, "query") for n in (first, third, first)]))
        ]
    ]
    for pushed, by_node in (plain, ours):
        assert by_node == {
            first: [[pushed[0]], [pushed[2]], []],
            second: [[], [], []],
            third: [[pushed[1]], [], []],
        }


def test_all_messages_of_a_node_at_once(grid):
    node = next(iter(with_mailboxes(grid).get_node_ids()))
    pushed = list(grid.push_messages([Message(RecordDict(), node, "query") for _ in range(3)]))
    assert found(grid, node, limit=None) == pushed


def test_a_message_that_was_deleted_is_not_delivered(grid):
    node = next(iter(with_mailboxes(grid).get_node_ids()))
    gone, there = grid.push_messages([Message(RecordDict(), node, "query") for _ in range(2)])
    grid.state.delete_messages({gone})
    assert found(grid, node) == [there]


def test_other_grids_stay_as_they_are():
    grid = InlineGrid(ClientApp(), clients=1)
    assert with_mailboxes(grid) is grid
