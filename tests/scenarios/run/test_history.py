"""The curves of a training, and the final model."""

import csv

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from safetensors.numpy import load_file

from fedsim.flower import vector_record
from fedsim.grids.metered import payload_bytes
from scenarios.run.curves import curves, traffic
from scenarios.run.directory import RunDirectory
from scenarios.run.history import read_curve
from scenarios.run.runner import read_result, train_run
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World

LEARNING = ("federation.server_model=updated", "clients.lr=0.1", "federation.evaluate_every=10")


@pytest.fixture
def trained(scenario_file, tmp_path):
    """A training whose model learns, its world, its figures and what its listener heard."""
    heard = []
    world = World.prepare(load_scenario(scenario_file, LEARNING))
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    figures = train_run(world, directory, listeners=[lambda done, row: heard.append((done, row))])
    return directory, world, figures, heard


def test_a_point_before_the_first_round_every_n_and_after_the_last(trained):
    directory, _, figures, heard = trained
    rows = read_curve(directory.history)
    assert [row["round"] for row in rows] == [0, 10, 20, 24] == [done for done, _ in heard]
    assert list(rows[0]) == ["round", "test_loss", "test_accuracy", "bytes_sent", "bytes_received"]
    # All 50 test examples are evaluated here, so the last point is the figure of the result.
    assert rows[-1]["test_accuracy"] == figures.training.test_accuracy
    assert rows[-1]["test_loss"] < rows[0]["test_loss"]
    assert [row["round"] for row in read_curve(directory.pace)] == [0, 10, 20, 24]
    assert heard[-1][1]["seconds"] >= 0


def test_bytes_are_those_of_models_and_updates(trained):
    directory, world, _, _ = trained
    rows = read_curve(directory.history)
    models = 4 * world.model.dim * world.schedule.sum()
    assert rows[0]["bytes_sent"] == rows[0]["bytes_received"] == 0
    # A call also carries a few numbers, and telemetry asks for counts.
    for column in ("bytes_sent", "bytes_received"):
        assert models < rows[-1][column] < 1.01 * models


def test_the_final_model_is_the_one_that_was_evaluated(trained):
    directory, world, _, _ = trained
    tensors = load_file(directory.model)
    final = np.concatenate([tensors[name].ravel() for name in world.model.module.state_dict()])
    assert final.tolist() == world.model.read().tolist()
    assert not np.array_equal(final, world.start)


def test_a_fixed_model_has_a_flat_curve(finished_run):
    rows = read_curve(finished_run.history)
    assert {row["test_accuracy"] for row in rows} == {read_result(finished_run).training.test_accuracy}
    assert "How the model learned" in finished_run.report.read_text()


def test_a_run_without_curves_has_no_charts_of_them(tmp_path):
    """As runs of earlier versions."""
    assert read_curve(tmp_path / "history.csv") == []
    assert curves([], "accuracy") == {}
    assert traffic([], []) == ""


def test_pace_is_not_part_of_the_digests(finished_run):
    digests = finished_run.manifest.file.read_text()
    assert "history.csv" in digests
    assert "model.safetensors" in digests
    assert "pace.csv" not in digests
    with finished_run.pace.open() as file:
        assert next(csv.reader(file)) == ["round", "seconds"]


def test_payload_is_the_content_of_a_message():
    content = RecordDict(
        {
            "arrays": vector_record(np.zeros(10, dtype=np.float32)),
            "more": ArrayRecord({"a": Array(np.zeros((2, 3)))}),
            "metrics": MetricRecord({"a": 1, "b": [1.0, 2.0]}),
            "config": ConfigRecord({"key": b"123", "text": "four", "on": True}),
        }
    )
    assert payload_bytes(Message(content, 1, "train")) == 40 + 48 + 3 * 8 + 3 + 4 + 8
