"""Who typed which word: from a small federation to the report."""

import shutil

import numpy as np
import pytest

from attacks.inference.words import Words, moved_rows
from fedsim.core.errors import UserError
from scenarios.run.directory import RunDirectory
from scenarios.run.inference.findings import Findings
from scenarios.run.inference.words import WordJudge
from scenarios.run.runner import attack_run, honest_part, run_scenario
from scenarios.run.scenario import LIBRARY, load_scenario
from scenarios.run.world import World

SMALL = [
    "data.people_generated=24",
    "federation.clients=24",
    "federation.rounds=20",
    "federation.participation.rate=0.2",
    "analytics.window=2",
    "model.embedding=4",
    "model.hidden=4",
]


@pytest.fixture(scope="module")
def words_run(tmp_path_factory):
    """The library's scenario with fewer people; fewer rounds than clients."""
    directory = RunDirectory.create(tmp_path_factory.mktemp("words") / "run", replace=False)
    return directory, run_scenario(World.prepare(load_scenario(LIBRARY / "words.toml", SMALL)), directory)


def test_rare_words_find_their_authors_with_fewer_rounds_than_clients(words_run):
    _, result = words_run
    score = result.scores["word_attribution"]
    assert result.disaggregation.solver == "sparse" and result.disaggregation.exact_fraction > 0.8
    assert score.precision_by_authors["1"] > 0.85 and score.recall_by_authors["1"] > 0.95
    # A column of four rounds says little about words of many authors.
    assert score.precision.disaggregated > 2 * score.precision.aggregate and score.recall.disaggregated > 0.6
    assert score.precision.oracle == score.recall.oracle == score.recall.aggregate == 1
    assert score.precision.aggregate < 0.5 and score.precision.frequency < 0.5
    assert score.sure == score.sure_right
    content = result.to_json()["word_attribution"]
    for figure in ("precision", "recall"):
        assert {"aggregate", "disaggregated", "oracle"} <= set(content[figure])
    assert result.training.test_perplexity > 1 and result.training.unigram_perplexity > 1


def test_the_report_shows_words_and_marks_the_wrong_ones(words_run):
    directory, _ = words_run
    page = directory.report.read_text()
    assert "secret000" in page and "typed; right" in page
    findings = Findings.load(directory, "word_attribution")
    wrong = findings.guesses["disaggregated"].copy()
    wrong[0] = 1 - findings.truth["typed"][findings.about("disaggregated")[0]]
    shown = WordJudge().show(
        Findings(
            "k",
            "word_attribution",
            findings.clients,
            findings.resolved,
            {**findings.guesses, "disaggregated": wrong},
            findings.truth,
        )
    )
    assert "word wrong" in shown


def test_other_solvers_are_compared_on_the_same_run(words_run, tmp_path):
    directory, result = words_run
    shutil.copytree(directory.path, tmp_path / "again")
    again = RunDirectory.open(tmp_path / "again")
    scenario = load_scenario(again.scenario, ["attack.solver=message_passing"])
    other = attack_run(scenario, again, honest_part(again))
    assert other.disaggregation.exact_fraction < result.disaggregation.exact_fraction


def test_tied_vectors_leave_no_trace(tmp_path):
    scenario = load_scenario(LIBRARY / "words.toml", [*SMALL, "model.tied=true"])
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    result = run_scenario(World.prepare(scenario), directory)
    assert result.disaggregation.exact_fraction < 0.2


def test_words_need_text(scenario_file):
    with pytest.raises(UserError, match="words needs next-word prediction; the data are for image"):
        World.prepare(load_scenario(scenario_file, ["attack.inference=['words']"]))


def test_moved_rows():
    updates = np.array([[0, 0, 0, 1e-9, 5], [1, 0, 0, 0, 5]], dtype=np.float32)
    assert moved_rows(updates, (2, 2)).tolist() == [[0, 1], [1, 0]]
    assert Words().kind == "word_attribution"


def test_rows_that_move_far_stand_out_of_noise():
    noise = np.random.default_rng(0).normal(0, 0.01, (1, 400, 8)).astype(np.float32)
    typed = np.arange(400) % 20 == 0
    noise[0, typed] += 0.05
    np.testing.assert_array_equal(moved_rows(noise.reshape(1, -1), (400, 8))[0] > 0, typed)


def test_withheld_entries_hide_words_of_few_authors(words_run, tmp_path):
    """A trusted machine drops what fewer than three clients moved: rare words leave no trace."""
    sets = [*SMALL, "federation.aggregation={ name = 'thresholded', least = 3 }"]
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    result = run_scenario(World.prepare(load_scenario(LIBRARY / "words.toml", sets)), directory)
    # Counts alone settle some columns.
    assert result.disaggregation.exact_fraction < 0.5 * words_run[1].disaggregation.exact_fraction
    # None instead of 0: no client has a column, so there is nobody to give a word to.
    assert not result.scores["word_attribution"].recall_by_authors["1"]
