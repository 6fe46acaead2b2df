"""The attacker sees only its view: shown by changing everything else, and by breaking the rule."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attacks.disaggregation import Recovery
from attacks.disaggregation.solvers import Solver
from attacks.inference import Inference
from attacks.view import AttackerView
from fedsim.core.seeds import Stage, stream
from fedsim.core.settings import members
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.inference.findings import Findings
from scenarios.run.runner import attack_run, honest_part, run_scenario
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World

ROOT = Path(__file__).parents[2]


SOLVERS = members(Solver)
SMALL_TEXTS = """
title = "Texts"
seed = 3
[data]
name = "texts"
people_generated = 12
[model]
name = "gru"
embedding = 4
hidden = 4
[clients]
lr = 1.0
[federation]
clients = 12
rounds = 30
server_model = "updated"
participation = { name = "bernoulli", rate = 0.3 }
[analytics]
window = 3
"""
INFERENCE = {
    "dlg": "{ name = 'dlg', restarts = 1, iterations = 2, targets = 1 }",
    "geiping": "{ name = 'geiping', iterations = 2, targets = 1 }",
    "analytic": "{ name = 'analytic', targets = 2 }",
    "label_inference": "{ name = 'label_inference' }",
    "property_inference": "{ name = 'property_inference', property = 'warm', updates = 2 }",
    "words": "{ name = 'words' }",
    "sentences": "{ name = 'sentences', targets = 3 }",
}


@pytest.fixture(scope="module")
def run_with_a_property(tmp_path_factory):
    """A small run on data with a property, so that every inference attack has something to work on."""
    from tests.conftest import SMALL_SCENARIO

    folder = tmp_path_factory.mktemp("property")
    (folder / "small.toml").write_text(SMALL_SCENARIO)
    settings = [
        "data.train_images=400",
        "data.test_images=400",
        "data.planted=0.4",
        "data.partition={ name = 'property', attribute = 'warm' }",
        "clients.dataset_size=8",
        "clients.batch_size=8",
        "attack.auxiliary_images=400",
    ]
    directory = RunDirectory.create(folder / "run", replace=False)
    run_scenario(World.prepare(load_scenario(folder / "small.toml", settings)), directory)
    return directory


def beside_an_opposite_truth(run, folder):
    """A copy of a run with another truth: everyone else took part, with the neighbour's update negated."""
    shutil.copytree(run.path, folder)
    directory = RunDirectory.open(folder)
    truth = Truth.load(directory.truth)
    opposite = Truth(1 - truth.participation, -np.roll(truth.updates, 1, axis=0))
    opposite.save(directory.truth)
    return directory


def attacked(directory, override):
    """The result of attacking a run again with another setting."""
    return attack_run(load_scenario(directory.scenario, [override]), directory, honest_part(directory))


@pytest.mark.parametrize("solver", SOLVERS)
def test_changing_the_truth_changes_no_recovery(solver, finished_run, tmp_path):
    """The same view beside an opposite truth: the recovery's bytes stay, only score and ceiling move."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    as_it_was = RunDirectory.open(tmp_path / "run")
    setting = f"attack.solver={solver}"
    before = attacked(as_it_was, setting)
    opposite = beside_an_opposite_truth(finished_run, tmp_path / "opposite")
    result = attacked(opposite, setting)
    assert opposite.recovery.read_bytes() == as_it_was.recovery.read_bytes()
    assert result.disaggregation.bit_accuracy < 0.5
    if SOLVERS[solver].needs_zero_rows:
        # No row of these sums is zero: it has no update to be wrong about.
        assert result.disaggregation.update_cosine == before.disaggregation.update_cosine == 0
    else:
        assert result.disaggregation.update_cosine < 0
    assert result.disaggregation.ceiling != before.disaggregation.ceiling


@pytest.fixture(scope="module")
def run_with_texts(tmp_path_factory):
    """A small run on texts, for attacks on words."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "small.toml").write_text(SMALL_TEXTS)
    directory = RunDirectory.create(folder / "run", replace=False)
    run_scenario(World.prepare(load_scenario(folder / "small.toml")), directory)
    return directory


@pytest.mark.parametrize("attack", INFERENCE)
def test_changing_the_truth_changes_no_guess_from_recovered_updates(attack, request, tmp_path):
    """Guesses from recovered updates stay the same; those of the oracle's column do not."""
    run = request.getfixturevalue(
        "run_with_texts" if attack in ("words", "sentences") else "run_with_a_property"
    )
    shutil.copytree(run.path, tmp_path / "run")
    as_it_was = RunDirectory.open(tmp_path / "run")
    opposite = beside_an_opposite_truth(run, tmp_path / "opposite")
    key = members(Inference)[attack].key or attack
    first, second = (
        Findings.load(directory, key)
        for directory in (as_it_was, opposite)
        if attacked(directory, f"attack.inference=[{INFERENCE[attack]}]")
    )
    np.testing.assert_array_equal(first.guesses["disaggregated"], second.guesses["disaggregated"])
    assert not np.array_equal(first.guesses["oracle"], second.guesses["oracle"])


def test_every_inference_attack_is_tried():
    assert set(INFERENCE) == set(members(Inference))


def test_an_attack_needs_no_truth_at_all(finished_run, tmp_path):
    """In a folder that holds the view alone, the attack gives the recovery that the run saved."""
    shutil.copytree(finished_run.transcript, tmp_path / "transcript")
    shutil.copy(finished_run.counts, tmp_path / "counts.csv")
    scenario = load_scenario(finished_run.scenario)
    view = AttackerView.load(tmp_path / "transcript", tmp_path / "counts.csv")
    recovery = scenario.attack.run(view, rng=stream(scenario.seed, Stage.ATTACK))
    saved = Recovery.load(finished_run.recovery)
    np.testing.assert_array_equal(recovery.participation, saved.participation)
    np.testing.assert_array_equal(recovery.updates, saved.updates)


def test_a_different_view_gives_a_different_recovery(finished_run):
    """The tests above would also pass for an attack that ignores its input; this one would not."""
    scenario = load_scenario(finished_run.scenario)
    view = AttackerView.load(finished_run.transcript, finished_run.counts)
    backwards = Transcript(
        aggregates=np.array(view.transcript.aggregates)[::-1],
        cohort_sizes=view.transcript.cohort_sizes[::-1],
        weights=view.transcript.weights[::-1],
        layer_shapes=view.transcript.layer_shapes,
    )
    first, second = (
        scenario.attack.run(v, rng=stream(scenario.seed, Stage.ATTACK))
        for v in (view, AttackerView(backwards, view.counts))
    )
    assert not np.array_equal(first.participation, second.participation)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("attacks/view.py", "import fedsim.trusted.truth"),
        ("attacks/disaggregation/updates.py", "from fedsim.trusted.truth import Truth"),
        ("analytics/report.py", "import fedsim.trusted.truth"),
        ("attacks/observing.py", "import fedsim.trusted.diary"),
        ("attacks/view.py", "from fedsim.trusted.spool import Spool"),
        ("analytics/collection.py", "from fedsim.trusted.masking import device_side"),
        ("attacks/view.py", "import fedsim.data"),
        # Not the truth itself, but modules that lead to it.
        ("attacks/view.py", "import fedsim.devices.client"),
        ("attacks/view.py", "import fedsim.grids.inline"),
        ("attacks/settings.py", "import fedsim.federation"),
        ("fedsim/records.py", "import fedsim.trusted.truth"),
        ("attacks/disaggregation/problem.py", "import torch"),
        ("attacks/disaggregation/disaggregate.py", "from fedsim.core.seeds import stream"),
        ("fedsim/data/images/synthetic.py", "import attacks.view"),
        # A ceiling needs the truth: neither an attack nor its process computes one.
        ("attacks/disaggregation/disaggregate.py", "import scenarios.run.ceiling.genie"),
        ("scenarios/run/attack_process.py", "from scenarios.run.ceiling.ceiling import score_ceiling"),
        ("scenarios/run/inference/run.py", "from scenarios.run.scoring import score_disaggregation"),
    ],
)
def test_the_linter_stops_whoever_breaks_the_rule(tmp_path, module, line):
    for package in ("fedsim", "analytics", "attacks", "scenarios"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{line}\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as lint; lint()",
            "--no-cache",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "BROKEN" in done.stdout
