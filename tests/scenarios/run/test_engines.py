"""One truth on every engine: the same seed gives the same schedule, counts and sums."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from analytics.report import ParticipationReport
from fedsim.core.errors import RunFailedError
from fedsim.grids.superlink import private_superlink
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.deploy import bundle, deploy
from scenarios.run.directory import RunDirectory
from scenarios.run.engines import Ray
from scenarios.run.flower_app import RunConfig
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World

ROOT = Path(__file__).parents[3]

# Engines may add in another order, so that the parameters of a trained model agree to a few roundings, and so
# do updates, which are differences of parameters.
SUM_TOLERANCE = 1e-5
PARAMETER_ROUNDINGS = 4


@pytest.fixture(autouse=True)
def _this_checkout(monkeypatch):
    """Processes that Flower starts import the packages under test, wherever they were installed from."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def on_ray(scenario, directory):
    run_scenario(World.prepare(scenario), directory, engine=Ray())


def on_superlink(scenario, directory):
    deploy(scenario, directory)


def as_flower_app(scenario, directory):
    """As a person does it: `flwr run .`, here with a SuperLink that simulates the nodes."""
    home = directory.path.parent / "flower"
    home.mkdir()
    file = home / "scenario.toml"
    file.write_text(scenario.to_toml())
    with private_superlink(nodes=0) as superlink:
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "private"\n[superlink.private]\n'
            f'address = "{superlink.address}"\ninsecure = true\n'
        )
        arguments = ["--format", "json", "--run-config", f'scenario="{file}" out="{directory.path}"']
        arguments += ["--federation-config", f"num-supernodes={scenario.federation.clients}"]
        submitted = subprocess.run(
            [Path(sysconfig.get_path("scripts")) / "flwr", "run", ROOT, *arguments],
            env={**os.environ, "FLWR_HOME": str(home), "FLWR_DISABLE_UPDATE_CHECK": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        superlink.wait(int(json.loads(submitted.stdout)["run-id"]))


UPDATED = "federation.server_model=updated"
# Steps finer than the tolerance: a rounding that falls the other way must not show.
MASKED = 'federation.aggregation={ name = "masked", bits = 48, modulus_bits = 64 }'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "override"),
    [
        (on_ray, "federation.server_model=fixed"),
        (on_ray, UPDATED),
        (on_ray, MASKED),
        (as_flower_app, UPDATED),
        (on_superlink, UPDATED),
        (on_superlink, MASKED),
    ],
)
def test_every_engine_gives_the_transcript_of_the_inline_one(run, override, scenario_file, tmp_path):
    """Few messages, because a SuperNode starts a process for each, yet sums of several and two windows."""
    # Masked sums hold three updates at the least, and take several messages per device and round.
    cohort, rounds = (3, 1) if override == MASKED else (2, 3)
    scenario = load_scenario(
        scenario_file,
        [
            override,
            "federation.clients=3",
            f"federation.rounds={rounds}",
            f"federation.participation={{ name = 'cohort', size = {cohort} }}",
            "analytics.window=2",
            "clients.lr=0.002",
        ],
    )
    directories = [RunDirectory.create(tmp_path / name, replace=False) for name in ("inline", "other")]
    run_scenario(World.prepare(scenario), directories[0])
    run(scenario, directories[1])
    expected, found = (Transcript.load(d.transcript) for d in directories)
    np.testing.assert_array_equal(found.cohort_sizes, expected.cohort_sizes)
    rounding = PARAMETER_ROUNDINGS * np.spacing(np.abs(World.prepare(scenario).model.read()).max())
    tolerance = rounding + SUM_TOLERANCE * np.abs(expected.aggregates).max()
    np.testing.assert_allclose(found.aggregates, expected.aggregates, rtol=0, atol=tolerance)
    counts = [ParticipationReport.read_csv(d.counts).count for d in directories]
    np.testing.assert_array_equal(counts[0], counts[1])
    truths = [Truth.load(d.truth).participation for d in directories]
    np.testing.assert_array_equal(truths[0], truths[1])
    assert directories[1].report.exists()


@pytest.mark.slow
def test_a_failed_run_is_reported_as_failed_and_nothing_stays_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = RunConfig(scenario="quickstrat", overrides="", out="", force=False)
    with (
        pytest.raises(RunFailedError, match=r"failed: .*quickstrat: no such file.*logs: "),
        private_superlink(nodes=1) as superlink,
    ):
        superlink.wait(superlink.submit(bundle(config)))
    assert all(process.poll() is not None for process in superlink.processes.values())
    (kept,) = tmp_path.iterdir()
    assert "quickstrat: no such file" in (kept / "serverapp.log").read_text()
