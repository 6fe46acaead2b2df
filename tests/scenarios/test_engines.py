"""One truth on every engine: the same seed gives the same schedule, counts and sums."""

import numpy as np
import pytest

from analytics.report import ParticipationReport
from fedsim.records import Transcript
from fedsim.truth import Truth
from scenarios.engine import Engine
from scenarios.run_directory import RunDirectory
from scenarios.scenario import load_scenario
from scenarios.simulate import simulate
from scenarios.world import World

# Clients in other processes may add in another order; float32 updates agree to a few roundings.
SUM_TOLERANCE = 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("engine", [engine for engine in Engine if engine is not Engine.INLINE])
@pytest.mark.parametrize("server_model", ["fixed", "updated"])
def test_every_engine_gives_the_transcript_of_the_inline_one(engine, server_model, scenario_file, tmp_path):
    scenario = load_scenario(
        scenario_file, [f"federation.server_model={server_model}", "federation.rounds=9", "clients.lr=0.002"]
    )
    directories = []
    for name in (Engine.INLINE, engine):
        directory = RunDirectory.create(tmp_path / name, replace=False)
        simulate(World.prepare(scenario), directory, name)
        directories.append(directory)
    expected, found = (Transcript.load(d.transcript) for d in directories)
    np.testing.assert_array_equal(found.cohort_sizes, expected.cohort_sizes)
    scale = np.abs(expected.aggregates).max()
    np.testing.assert_allclose(found.aggregates, expected.aggregates, rtol=0, atol=SUM_TOLERANCE * scale)
    counts = [ParticipationReport.read_csv(d.counts).count for d in directories]
    np.testing.assert_array_equal(counts[0], counts[1])
    truths = [Truth.load(d.truth).participation for d in directories]
    np.testing.assert_array_equal(truths[0], truths[1])
