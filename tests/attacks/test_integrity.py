"""The attacker sees only its view: shown by changing everything else, and by breaking the rule."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attacks.disaggregation import Recovery
from attacks.view import AttackerView
from fedsim.core.seeds import Stage, stream
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.directory import RunDirectory
from scenarios.run.runner import attack_run, honest_part
from scenarios.run.scenario import load_scenario

ROOT = Path(__file__).parents[2]


def test_changing_the_truth_changes_no_recovery(finished_run, tmp_path):
    """The same view beside an opposite truth: the recovery's bytes stay, only the score moves."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    directory = RunDirectory.open(tmp_path / "run")
    truth = Truth.load(directory.truth)
    opposite = Truth(participation=1 - truth.participation, updates=-np.array(truth.updates))
    opposite.save(directory.truth)

    before = directory.recovery.read_bytes()
    result = attack_run(load_scenario(directory.scenario), directory, honest_part(directory))
    assert directory.recovery.read_bytes() == before
    assert result.disaggregation.bit_accuracy == 0.0
    assert result.disaggregation.update_cosine < 0


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
        ("attacks/view.py", "import fedsim.engines.inline"),
        ("attacks/settings.py", "import fedsim.federation"),
        ("fedsim/records.py", "import fedsim.trusted.truth"),
        ("attacks/disaggregation/problem.py", "import torch"),
        ("fedsim/data/images/synthetic.py", "import attacks.view"),
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
