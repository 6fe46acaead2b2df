"""Runs side by side."""

import shutil

import pytest

from scenarios.compare.comparison import differing, figures, read_runs


@pytest.fixture
def two(finished_run, tmp_path):
    """The same run twice; the second one says that its seed and its solver were others."""
    for name in ("a", "b"):
        shutil.copytree(finished_run.path, tmp_path / name)
    settings = tmp_path / "b/scenario.toml"
    settings.write_text(settings.read_text().replace("seed = 0", "seed = 9").replace('"auto"', '"highs"'))
    return tmp_path / "a", tmp_path / "b"


def test_only_settings_that_differ_are_shown(two):
    runs = read_runs(two)
    assert [run.name for run in runs] == ["a", "b"]
    found = differing(runs)
    assert found["attack.solver.name"] == ["auto", "highs"]
    assert "federation.rounds" not in found
    shown = figures(runs)
    exact = runs[0].result.disaggregation.exact_fraction
    assert shown["columns exactly right: attack"] == [exact, exact]
    assert all(first == second for first, second in shown.values())


def test_the_command_prints_a_table_and_leaves_a_page(fedsim, two, tmp_path):
    done = fedsim("compare", *two)
    assert done.status == 0
    assert "attack.solver.name" in done.stdout
    page = (tmp_path / "compare.html").read_text()
    assert "Settings that differ" in page
    assert page.count('class="chart"') == 2


@pytest.mark.parametrize("others", [[], ["a"]])
def test_one_run_is_no_comparison(fedsim, two, others):
    done = fedsim("compare", "a", *others)
    assert (done.status, done.stderr) == (2, "fedsim: compare needs two or more different runs\n")


def test_a_folder_without_a_run_is_said_to(fedsim, two, tmp_path):
    (tmp_path / "empty").mkdir()
    done = fedsim("compare", "a", "empty")
    assert done.status == 2
    assert "empty is not a finished run: scenario.toml is missing" in done.stderr
    assert not (tmp_path / "compare.html").exists()
