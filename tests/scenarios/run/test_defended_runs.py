"""Defences from end to end: what a run publishes, what the attack still gets, and what it cost."""

import json

import numpy as np
import pytest

from analytics.report import ParticipationReport
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import load_scenario
from scenarios.run.sections import Analytics, AnonymitySet
from scenarios.run.world import World

BATCHES = "federation.participation={ name = 'batches', batch_size = 3, per_round = 1 }"


@pytest.fixture
def run(scenario_file, tmp_path):
    def start(*overrides, name="run"):
        directory = RunDirectory.create(tmp_path / name, replace=False)
        result = run_scenario(World.prepare(load_scenario(scenario_file, overrides)), directory)
        return directory, result

    return start


def test_without_counts_the_columns_are_still_found(run):
    """Off is not the end of the story: all that goes is the names."""
    directory, result = run("analytics.collection=off", "federation.rounds=40")
    found = result.disaggregation
    assert directory.counts.read_text().splitlines() == ["client,start,stop,count"]
    assert found.pseudonymous
    assert found.exact_up_to_names == 1
    assert found.update_cosine > 0.999
    assert found.baselines.counts_only_exact_fraction < 0.01
    assert result.analytics == Analytics(release=(), count_error=None, missing_fraction=1.0, mean_window=None)
    assert result.messages.telemetry == 0
    assert "have no names" in directory.report.read_text()


def test_batches_hide_clients_from_any_number_of_rounds(run):
    """Columns are known, even to whom they belong: to three clients each, and their updates only as a sum."""
    for rounds in (12, 48):
        directory, result = run(BATCHES, f"federation.rounds={rounds}", name=f"run{rounds}")
        found = result.disaggregation
        assert found.singled_out_fraction == 0
        assert found.baselines.oracle_singled_out_fraction == 0
        assert found.update_cosine < 0.9
        assert result.cohorts.anonymity_set == AnonymitySet(smallest=3, mean=3.0)
        assert result.cohorts.fairness == 1
        assert np.linalg.matrix_rank(Transcript.load(directory.transcript).aggregates) == 2
        with np.load(directory.recovery) as recovery:
            assert all("always together" in reason for reason in recovery["reason"])


def test_a_member_that_fails_breaks_its_batch(run):
    _, result = run(BATCHES, "clients.failures.absent=0.3", "federation.rounds=30")
    assert result.cohorts.anonymity_set.smallest == 1


@pytest.mark.parametrize(
    "defence",
    [
        "{ name = 'clipping', norm = 0.01 }",
        "{ name = 'top_k', fraction = 0.1 }",
        "{ name = 'noise', sd = 0.001 }",
        "{ name = 'quantisation', bits = 4 }",
        "{ name = 'local_dp', norm = 0.01, epsilon = 1.0 }",
    ],
)
def test_the_truth_is_what_the_sums_are_made_of(run, defence):
    """The diary stands around the defences: where everybody always takes part, sums are sums of the truth."""
    directory, result = run(f"defences=[{defence}]", "federation.rounds=4", "federation.participation.rate=1")
    truth, transcript = Truth.load(directory.truth), Transcript.load(directory.transcript)
    mean_sum = transcript.aggregates.mean(axis=0)
    np.testing.assert_allclose(mean_sum, truth.updates.sum(axis=0), atol=1e-5 * np.abs(mean_sum).max())
    assert result.defences[0]["name"] in defence


def test_where_central_noise_goes_decides_who_is_kept_out(run):
    """On the sum it hides the updates from the server; on the model, as Flower adds it, it does not."""
    noisy = "defences=[{{ name = 'central_dp', norm = 0.01, noise_multiplier = 5, noise_on = '{}' }}]"
    quick, moving = "attack.solver=projection", "federation.server_model=updated"
    on_sum, with_sum = run(noisy.format("sum"), quick, name="sum")
    on_model, with_model = run(noisy.format("model"), quick, name="model")
    assert with_sum.disaggregation.exact_fraction < 0.5
    assert with_model.disaggregation.exact_fraction == 1
    for directory, sd in ((on_sum, 0.05), (on_model, 0)):
        truth, transcript = Truth.load(directory.truth), Transcript.load(directory.transcript)
        left = transcript.aggregates - truth.participation.astype(np.float32) @ truth.updates
        assert left.std() == pytest.approx(sd, rel=0.05, abs=1e-6)
    stated = with_sum.defences[0]
    assert stated["releases"] == with_sum.cohorts.rounds_per_client.most
    assert stated["epsilon_in_all"] > stated["epsilon_per_round"] > 0
    _, moved = run(noisy.format("model"), quick, moving, name="moving")
    assert moved.training.test_accuracy != with_model.training.test_accuracy


def test_costs_are_measured(run):
    directory, result = run(
        "federation.aggregation=masked",
        "federation.participation={ name = 'cohort', size = 3 }",
        "analytics.release=[{ name = 'coarsening', counts = 2 }, { name = 'gaussian', sd = 2.0 }]",
    )
    truth, counts = Truth.load(directory.truth), ParticipationReport.read_csv(directory.counts)
    answers = ParticipationReport.read_csv(directory.answers)
    invited = truth.participation.sum() / 24
    assert (result.messages.training, result.messages.masking) == pytest.approx((invited, 4 * invited))
    assert result.messages.telemetry == 6 * 6 / 24
    assert len(answers.count) == 2 * len(counts.count)
    exact = np.add.reduceat(answers.count, np.arange(0, len(answers.count), 2))
    assert result.analytics.count_error == pytest.approx(np.abs(counts.count - exact).mean())
    assert result.analytics.mean_window == 8
    assert [s["name"] for s in result.analytics.release] == ["coarsening", "gaussian"]
    page = directory.report.read_text()
    assert "gaussian: sd 2" in page
    assert "masking" in page


def test_the_same_scenario_gives_the_same_bytes(run):
    overrides = (
        "defences=[{ name = 'quantisation', bits = 3 }, { name = 'local_dp', norm = 0.1, epsilon = 9.0 }]",
        "attack.solver=projection",
        "analytics.collection=own_windows",
        "analytics.late=0.2",
        "analytics.missing=0.1",
        "analytics.release=[{ name = 'gaussian', sd = 1.0 }, { name = 'drop', fraction = 0.2 }]",
    )
    first, second = (run(*overrides, name=name)[0] for name in ("first", "second"))
    for file in ("counts.csv", "scenario.toml", "transcript/aggregates.npy", "recovery.npz"):
        assert (first.path / file).read_bytes() == (second.path / file).read_bytes(), file


def test_the_summary_says_what_is_known_of_groups(fedsim, scenario_file):
    done = fedsim("run", scenario_file, "--set", BATCHES)
    assert done.status == 0, done.stderr
    assert "singled out       0.000   of the others no update, or only a group's" in done.stdout
    done = fedsim("run", scenario_file, "--set", "analytics.collection=off", "--out", "off")
    assert "columns matched to names by the truth" in done.stdout


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "federation.participation={ name = 'batches', batch_size = 4, per_round = 2 }",
            "per_round is 2: expected",
        ),
        (
            "analytics.release=[{ name = 'rounding', multiple = 2 }, { name = 'private', epsilon = 1 }]",
            "before",
        ),
        ("defences=[{ name = 'noise', sd = 0 }]", "defences.0.sd is 0"),
    ],
)
def test_mistakes_leave_nothing(fedsim, scenario_file, tmp_path, override, message):
    done = fedsim("run", scenario_file, "--set", override)
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_list_names_them(fedsim):
    """Beside plug-ins of installed packages."""
    found = json.loads(fedsim("list", "--json").stdout)
    assert {"clipping", "noise", "local_dp", "top_k", "quantisation", "central_dp"} <= set(found["defences"])
    assert {"bernoulli", "cohort", "batches"} == set(found["participation"])
    assert {"windows", "own_windows", "cumulative", "off"} == set(found["collection of counts"])
    assert {"drop", "rounding", "threshold", "coarsening", "gaussian", "private"} <= set(
        found["release of counts"]
    )
