"""Telemetry over Flower messages: answers are what devices counted."""

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from analytics.collection import CountCollector
from analytics.settings import AnalyticsSettings
from attacks.disaggregation import DisaggregationProblem
from fedsim.flower import vector_record
from tests.helpers.fleet import Fleet


@pytest.mark.parametrize("collection", ["windows", "own_windows", "cumulative"])
def test_answers_are_the_devices_own_counts(collection):
    """Devices that train in known rounds, asked over Flower messages: every count heard is right."""
    trained = np.random.default_rng(0).random((12, 3)) < 0.4
    settings = AnalyticsSettings(window=3, collection=collection, late=0.3, missing=0.3)
    fleet = Fleet(np.ones((3, 2), dtype=np.float32))
    collector = CountCollector(FedAvg(), settings.questions(rounds=12, clients=3, seed=5))
    arrays, nodes = vector_record(np.zeros(2, dtype=np.float32)), list(fleet.grid.get_node_ids())
    for r in range(12):
        for message in fleet.summation.open_round(fleet.invitation(r + 1)).messages:
            if trained[r, nodes.index(message.metadata.dst_node_id)]:
                fleet.grid.send_and_receive([message])
        questions = collector.configure_evaluate(r + 1, arrays, ConfigRecord(), fleet.grid)
        collector.aggregate_evaluate(r + 1, fleet.grid.send_and_receive(questions))
    report = collector.report()
    assert list(report.clients) == [0, 1, 2]
    heard = ~np.isnan(report.count)
    assert 0 < heard.sum() < len(heard)
    for k, start, stop, count in zip(
        report.client[heard], report.start[heard], report.stop[heard], report.count[heard], strict=True
    ):
        assert count == trained[start:stop, k].sum()
    assert (report.start == 0).all() == (collection == "cumulative")
    assert DisaggregationProblem(np.ones((12, 2)), report).windows.meet(trained.T.astype(np.uint8)).all()
