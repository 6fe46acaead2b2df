"""Tables: a file with a target, scikit-learn's data sets, and bad input in one line."""

import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.data import BreastCancer, Digits, TableFile, Wine
from scenarios.run.directory import RunDirectory
from scenarios.run.scenario import load_scenario
from scenarios.run.simulate import simulate
from scenarios.run.world import World

pytest.importorskip("pandas")


def write(folder, text):
    file = folder / "t.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("source", "rows", "features"), [(BreastCancer, 569, 30), (Digits, 1797, 64), (Wine, 178, 13)]
)
def test_bundled_tables(source, rows, features):
    data = source().load(1)
    assert len(data.train) + len(data.test) == rows and data.task.input_shape == (features,)
    np.testing.assert_allclose(data.train.inputs.mean(axis=0), 0, atol=1e-5)


def test_a_table_of_one_s_own(tmp_path):
    rows = "\n".join(f"{i % 3},{i},{i * i},{'yes' if i % 2 else 'no'}" for i in range(20))
    file = write(tmp_path, f"who,a,b,label\n{rows}\n")
    data = TableFile(path=file, target="label", client="who").load(0)
    assert data.task.outputs == 2 and data.task.input_shape == (2,)
    assert set(data.train.owners) == {0, 1, 2}
    numbers = TableFile(path=file, target="b", client="who")
    with pytest.raises(UserError, match="column 'label' is not numeric"):
        numbers.load(0)


def test_a_parquet_table_is_the_same_table(tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rows = pandas.DataFrame({"who": list("abc") * 8, "a": range(24), "label": ["yes", "no"] * 12})
    rows.to_parquet(tmp_path / "t.parquet")
    rows.to_csv(tmp_path / "t.csv", index=False)
    first, second = (
        TableFile(path=tmp_path / f"t.{kind}", target="label", client="who").load(0)
        for kind in ("parquet", "csv")
    )
    assert first.task == second.task and set(first.train.owners) == {0, 1, 2}
    np.testing.assert_array_equal(first.train.inputs, second.train.inputs)
    np.testing.assert_array_equal(first.train.targets, second.train.targets)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match=r"t\.parquet"):
        TableFile(path=tmp_path / "t.parquet", target="label").load(0)


def test_a_number_to_predict_is_scaled(tmp_path):
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{x},{3 * x + 1}" for x in rng.normal(size=60))
    data = TableFile(path=write(tmp_path, f"x,y\n{rows}\n"), target="y").load(0)
    assert data.task.metric.name == "r2" and data.train.targets.dtype == np.float32
    assert data.train.targets.std() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,target\n1,\n2,3\n", "column 'target' has missing values"),
        ("a,target\n,1\n2,3\n", "column 'a' has missing values"),
        ("a,target\nred,1\nblue,3\n", "column 'a' is not numeric"),
        ("a,target\n1,1\n2,1\n", "all 2 rows have the same value"),
        ("a,b\n1,1\n", "has no column 'target'"),
        ("a,target\n", "has no rows"),
        ("target\n1\n2\n", "has no feature besides 'target'"),
        ("a,target\ninf,1\n2,3\n", "column 'a' has an infinite value"),
        ("", "not a table"),
    ],
)
def test_bad_tables_are_one_line(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        TableFile(path=write(tmp_path, content)).load(0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.csv", "t.xlsx"])
def test_a_file_that_is_no_table(tmp_path, name):
    with pytest.raises(UserError, match=r"missing|expected a \.csv"):
        TableFile(path=tmp_path / name).load(0)


def test_a_federation_trains_on_a_table(scenario_file, tmp_path):
    text = scenario_file.read_text().replace("train_images = 200\ntest_images = 50\n", "")
    scenario_file.write_text(text)
    sets = ["data=breast_cancer", "federation.server_model=updated", "clients.lr=0.5"]
    world = World.prepare(load_scenario(scenario_file, sets))
    run = simulate(world, RunDirectory.create(tmp_path / "run", replace=False))
    assert run.evaluation.metric > 0.8
