"""A fleet of devices whose updates and mishaps are known beforehand, for the tests of summing."""

from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from analytics.counters import answer_count_queries, counting_mod, question
from fedsim.devices.client import IDENTIFY
from fedsim.flower import WEIGHT, client_number, enter_local_task, vector_record
from fedsim.grids.inline import InlineGrid
from fedsim.trusted.diary import answer_diary_queries, diary_mod
from fedsim.trusted.failures import Failures
from fedsim.trusted.rounds import Invitation
from fedsim.trusted.summation import Ideal


class Planned(Failures):
    """Failures by appointment: `plan` maps (client, round index) to what goes wrong."""

    plan: Any

    def draw(self, seed, client, round_index):
        return self.plan.get((client, round_index))


class Fleet:
    """One device per update, with 5 + its number as its examples; it sends the same in every round.

    `plan` may grow while devices keep what they remember.
    """

    def __init__(self, updates, aggregation=None, plan=None):
        enter_local_task()
        self.updates, self.aggregation = updates, aggregation or Ideal()
        self.plan = {} if plan is None else plan
        failing = Planned(plan=self.plan).device_mods(seed=0)
        app = ClientApp(mods=[*failing, counting_mod, *self.aggregation.device_mods(), diary_mod])
        self.aggregation.teach(app)
        answer_diary_queries(app)
        answer_count_queries(app)

        @app.train()
        def train(message, context):
            client = client_number(context)
            arrays, metrics = vector_record(updates[client]), MetricRecord({WEIGHT: 5 + client})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

        @app.query(IDENTIFY.removeprefix("query."))
        def identify(message, context):
            content = RecordDict({"identity": MetricRecord({"client": client_number(context)})})
            return Message(content, reply_to=message)

        self.app, self.grid = app, InlineGrid(app, len(updates))
        self.summation = self.aggregation.enrol(self.grid, list(self.grid.get_node_ids()))

    def invitation(self, server_round=1):
        """Everybody is invited."""
        content = RecordDict(
            {
                "arrays": vector_record(np.zeros_like(self.updates[0])),
                "config": ConfigRecord({"server-round": server_round}),
            }
        )
        nodes = tuple(self.grid.get_node_ids())
        return Invitation(self.grid, server_round, Message(content, nodes[0], "train"), nodes)

    def sum(self, server_round=1):
        """A whole round: the sum, and what each node replied to the call for training."""
        summing = self.summation.open_round(self.invitation(server_round))
        replies = list(self.grid.send_and_receive(summing.messages))
        return summing.close(replies), replies

    def counts(self, rounds=1):
        """What each device has counted since the last time."""
        questions = [question(node, rounds) for node in self.grid.get_node_ids()]
        return [reply.content["answer"]["count"] for reply in self.grid.send_and_receive(questions)]
