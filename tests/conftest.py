import os

import pytest

# Thread counts are part of a float's last digits; the suite fixes them before NumPy is loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

SMALL_SCENARIO = """
title = "Small"
seed = 3
[data]
name = "synthetic"
train_images = 200
test_images = 50
[model]
name = "mlp"
hidden = 8
[clients]
dataset_size = 16
batch_size = 16
[federation]
clients = 6
rounds = 24
participation = { name = "bernoulli", rate = 0.3 }
[analytics]
window = 4
"""


@pytest.fixture
def scenario_file(tmp_path):
    """A scenario small enough for a test; full batches, so that a client's update never changes."""
    file = tmp_path / "small.toml"
    file.write_text(SMALL_SCENARIO)
    return file


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A small run from training to report, made once for the whole suite; copy it before changing it."""
    from scenarios.run.directory import RunDirectory
    from scenarios.run.runner import run_scenario
    from scenarios.run.scenario import load_scenario
    from scenarios.run.world import World

    folder = tmp_path_factory.mktemp("finished")
    file = folder / "small.toml"
    file.write_text(SMALL_SCENARIO)
    directory = RunDirectory.create(folder / "run", replace=False)
    run_scenario(World.prepare(load_scenario(file)), directory)
    return directory
