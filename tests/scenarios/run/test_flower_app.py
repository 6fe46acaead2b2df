"""The Flower app on a grid inside this process; on Flower's own runtimes it is a case of `test_engines`."""

import io
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.cli.config_utils import load_and_validate
from flwr.clientapp import ClientApp
from flwr.common.config import get_fab_config

from fedsim.core.errors import NotStartedError, UserError
from fedsim.flower import SERVER_NODE_ID, enter_local_task
from fedsim.grids.inline import InlineGrid
from scenarios.run.deploy import bundle
from scenarios.run.flower_app import RunConfig, client_app, server_app

ROOT = Path(__file__).parents[3]


class Configured(ClientApp):
    """The app on devices that got a run config, as Flower's runtimes hand it out."""

    def __init__(self, config):
        super().__init__()
        self._config = config

    def __call__(self, message, context):
        context.run_config = self._config
        return client_app(message, context)


def run_app(*, nodes=6, **config):
    config = {"overrides": "", "out": "", "force": False, **config}
    enter_local_task()
    context = Context(run_id=1, node_id=SERVER_NODE_ID, node_config={}, state=RecordDict(), run_config=config)
    server_app(InlineGrid(Configured(config), clients=nodes), context)


def test_the_app_does_what_run_does(finished_run, scenario_file, tmp_path):
    run_app(scenario=str(scenario_file), out=str(tmp_path / "run"))
    for name in ("scenario.toml", "transcript/rounds.csv", "counts.csv", "truth/participation.npy"):
        assert (tmp_path / "run" / name).read_bytes() == (finished_run.path / name).read_bytes(), name
    # Devices train one by one here, and together in `run`.
    found, expected = (
        np.load(run / "transcript/aggregates.npy") for run in (tmp_path / "run", finished_run.path)
    )
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)
    assert (tmp_path / "run" / "report.html").exists()


def test_run_config(scenario_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_app(scenario=str(scenario_file), overrides="federation.rounds=2; title=Two words;")
    written = tomllib.loads((tmp_path / "runs/small/scenario.toml").read_text())
    assert (written["federation"]["rounds"], written["title"]) == (2, "Two words")
    with pytest.raises(UserError, match="already holds a run"):
        run_app(scenario=str(scenario_file))
    with pytest.raises(UserError, match="no such scenario in the library"):
        run_app(scenario="quickstrat")


def test_a_missing_node_leaves_nothing(scenario_file, tmp_path, monkeypatch):
    monkeypatch.setattr("fedsim.grids.nodes.CONNECT_LIMIT_S", 0)
    with pytest.raises(NotStartedError, match="5 nodes are connected"):
        run_app(scenario=str(scenario_file), out=str(tmp_path / "run"), nodes=5)
    assert not (tmp_path / "run").exists()


def test_pyproject_describes_the_app():
    """Flower finds the two apps, the run config has the right keys, and the bundle carries no code."""
    config, warnings = load_and_validate(ROOT / "pyproject.toml")
    assert warnings == []
    app = config["tool"]["flwr"]["app"]
    defaults = RunConfig.model_validate(app["config"])
    shipped, _ = build_fab_from_files(
        {
            name: ROOT / name
            for name in ("pyproject.toml", "LICENSE", "README.md", "scenarios/run/flower_app.py")
        }
    )
    with zipfile.ZipFile(io.BytesIO(shipped)) as archive:
        assert set(archive.namelist()) == {"pyproject.toml", "LICENSE", ".info/CONTENT"}
    generated = get_fab_config(bundle(defaults))["tool"]["flwr"]["app"]
    app.pop("fab-include")
    assert app == generated
