"""Tensors of any kind as a data set, and Flower's partitioners."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.data import Examples, Iid, Tensors
from fedsim.data.flower_partition import FlowerPartition
from fedsim.tasks.images import ImageClassification
from fedsim.tasks.images.tensors import ImageTensorClassification
from fedsim.tasks.tensors import TensorClassification, TensorRegression
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import train_run
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World

RNG = np.random.default_rng(0)
ROWS: dict[str, Any] = {
    "inputs": RNG.normal(size=(30, 5)),
    "targets": np.arange(30) % 3,
    "clients": np.repeat(["ann", "bob", "cy"], [12, 10, 8]),
}


def saved(folder, kind, arrays):
    path = folder / f"own.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)
    elif kind == "safetensors":
        numpy = pytest.importorskip("safetensors.numpy")
        ids = np.unique(arrays["clients"], return_inverse=True)[1]
        numpy.save_file({**arrays, "clients": ids}, path)
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {f"x{i}": arrays["inputs"][:, i] for i in range(5)}
        parquet.write_table(
            pyarrow.table({**columns, **{k: arrays[k] for k in ("targets", "clients")}}), path
        )
    return path


@pytest.mark.parametrize("kind", ["npz", "safetensors", "parquet"])
def test_every_kind_of_file_gives_the_same_data(tmp_path, kind):
    data = Tensors(path=saved(tmp_path, kind, ROWS)).load(0)
    assert isinstance(data.task, TensorClassification)
    assert (data.task.outputs, data.task.input_shape) == (3, (5,))
    assert len(data.train) + len(data.test) == 30
    everything = np.concatenate((data.train.inputs, data.test.inputs))
    np.testing.assert_allclose(np.sort(everything, axis=0), np.sort(ROWS["inputs"], axis=0))
    assert data.train.owners is not None
    assert set(data.train.owners) == {0, 1, 2}
    assert data.task.as_inputs(data.train.inputs).dtype.is_floating_point


@pytest.mark.parametrize(
    ("inputs", "targets", "task"),
    [
        (np.zeros((8, 6, 6, 3), np.uint8), np.arange(8) % 2, ImageClassification),
        (np.zeros((8, 1, 6, 6), np.float64), np.arange(8) % 2, ImageTensorClassification),
        (np.zeros((8, 4), np.int16), np.arange(8) % 2 == 0, TensorClassification),
        (np.zeros((8, 4, 2), np.float16), np.linspace(0, 1, 8), TensorRegression),
        (np.zeros((8,), np.float32), np.zeros((8, 2), np.float64), TensorRegression),
    ],
)
def test_shapes_and_types_say_the_task(tmp_path, inputs, targets, task):
    np.savez(tmp_path / "own.npz", inputs=inputs, targets=targets)
    data = Tensors(path=tmp_path / "own.npz", partition=Iid()).load(0)
    assert type(data.task) is task


def own_arrays():
    return {**ROWS, "targets": ROWS["targets"].tolist()}


def no_arrays():
    return [1, 2]


def test_arrays_from_a_function():
    data = Tensors(path=Path(f"{__name__}:own_arrays")).load(0)
    assert len(data.train) + len(data.test) == 30
    with pytest.raises(UserError, match="no_arrays: TypeError: expected arrays by name, got list"):
        Tensors(path=Path(f"{__name__}:no_arrays")).load(0)


def test_a_given_test_part_is_used(tmp_path):
    tests: dict[str, Any] = {"test_inputs": np.ones((4, 5)), "test_targets": np.array([0, 1, 2, 2])}
    np.savez(tmp_path / "own.npz", **ROWS, **tests)
    data = Tensors(path=tmp_path / "own.npz").load(0)
    assert (len(data.train), len(data.test)) == (30, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": None}, "has no clients, which the natural partition needs"),
        ({"clients": np.arange(7)}, r"clients: \(7,\), but there are 30 inputs"),
        ({"clients": np.zeros((30, 2))}, "clients: expected one id per example"),
        ({"targets": None}, "targets missing"),
        ({"targets": np.full(30, -1)}, "labels: expected 0"),
        ({"targets": np.full(30, "a")}, "targets: expected numbers"),
        ({"inputs": np.full((30, 5), np.nan)}, "inputs: expected finite numbers"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, change, message):
    arrays = {name: array for name, array in {**ROWS, **change}.items() if array is not None}
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(UserError, match=message) as caught:
        Tensors(path=tmp_path / "own.npz").load(0)
    assert "\n" not in str(caught.value)


def test_files_of_other_kinds(tmp_path):
    (tmp_path / "own.txt").write_text("1,2")
    with pytest.raises(UserError, match=r"expected \.npz, \.safetensors, \.parquet"):
        Tensors(path=tmp_path / "own.txt").load(0)
    with pytest.raises(UserError, match="there is no file"):
        Tensors(path=tmp_path / "none.npz").load(0)


def test_client_ids_become_the_partition_of_a_run(scenario_file, tmp_path):
    np.savez(tmp_path / "own.npz", **ROWS)
    source = f"data={{ name = 'tensors', path = '{tmp_path}/own.npz' }}"
    world = World.prepare(load_scenario(scenario_file, [source, "federation.clients=3"]))
    sizes = np.bincount(world.data.train.owners)
    assert [len(mine) for mine in world.owned] == sizes.tolist()
    train_run(world, RunDirectory.create(tmp_path / "run", replace=False))
    with pytest.raises(UserError, match=r"federation\.clients is 4: the data have 3 people"):
        World.prepare(load_scenario(scenario_file, [source, "federation.clients=4"]))


def deal(partition, clients, owners=None):
    labels = np.repeat(np.arange(4), 25)
    examples = Examples(np.zeros((100, 2)), labels, owners=owners)
    return labels, partition.deal(examples, clients, 10, np.random.default_rng(0))


def test_flowers_partitioners():
    pytest.importorskip("flwr_datasets")
    shards = FlowerPartition(
        partitioner="PathologicalPartitioner",
        settings={"partition_by": "label", "num_classes_per_partition": 2},
    )
    labels, owned = deal(shards, 6)
    assert all(len(np.unique(labels[mine])) == 2 for mine in owned)
    assert len(np.unique(np.concatenate(owned))) == sum(map(len, owned))
    assert all(np.array_equal(a, b) for a, b in zip(owned, deal(shards, 6)[1], strict=True))
    natural = FlowerPartition(partitioner="NaturalIdPartitioner", settings={"partition_by": "client"})
    owners = np.arange(100) % 5
    assert [owners[mine][0] for mine in deal(natural, 5, owners)[1]] == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match=r"federation\.clients is 4: NaturalIdPartitioner makes 5 partitions"):
        deal(natural, 4, owners)
    with pytest.raises(UserError, match=r"data\.partition: NaturalIdPartitioner: "):
        deal(natural, 4)
    with pytest.raises(UserError, match=r"data\.partition\.partitioner is 'Own': expected one of"):
        deal(FlowerPartition(partitioner="Own"), 4)
    with pytest.raises(UserError, match=r"data\.partition: IidPartitioner: .*alpha"):
        deal(FlowerPartition(settings={"alpha": 1.0}), 4)
    assert hash(natural) == hash(natural.model_copy())
