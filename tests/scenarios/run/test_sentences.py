"""What people wrote: from a small federation to ROUGE and the report."""

import numpy as np
import pytest

from scenarios.run.directory import RunDirectory
from scenarios.run.inference.rouge import bag_f1, matched, rouge
from scenarios.run.runner import run_scenario
from scenarios.run.scenario import LIBRARY, load_scenario
from scenarios.run.world import World

SMALL = [
    "data.people_generated=6",
    "federation.clients=6",
    "federation.rounds=16",
    "analytics.window=2",
    "attack.inference=['sentences']",
]


def test_recovered_updates_become_sentences(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    result = run_scenario(World.prepare(load_scenario(LIBRARY / "sentences.toml", SMALL)), directory)
    score = result.scores["sentences"]
    assert score.resolved > 0 and score.exact.disaggregated > 0.9 and score.exact.oracle == 1
    for figure in (score.rouge_1, score.rouge_2, score.rouge_l):
        assert figure.disaggregated > max(0.9, figure.aggregate, figure.frequency)
    content = result.to_json()["sentences"]
    for name in ("rouge_1", "rouge_2", "rouge_l"):
        assert {"aggregate", "disaggregated", "oracle"} <= set(content[name])
    page = directory.report.read_text()
    assert "what the attack reads" in page and "my code is secret000" in page


PIECES = [np.array([1, 2, 3, 4]), np.array([5, 6, 7, 8])]


def test_rouge_by_hand():
    assert rouge(PIECES[::-1], PIECES) == pytest.approx({"rouge_1": 1, "rouge_2": 1, "rouge_l": 1})
    # One piece is missing and the other turned round: all of its words, none of its pairs, one in order.
    found = rouge([np.array([4, 3, 2, 1])], PIECES)
    assert found == pytest.approx({"rouge_1": 1 / 2, "rouge_2": 0, "rouge_l": 1 / 8})
    assert rouge([], PIECES) == {"rouge_1": 0, "rouge_2": 0, "rouge_l": 0}


def test_rouge_is_that_of_torchmetrics():
    from fedsim.core.torchvision_compat import declare_missing_operators

    declare_missing_operators()
    rouge_score = pytest.importorskip("torchmetrics.functional.text.rouge").rouge_score
    names = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
    rng = np.random.default_rng(0)
    for _ in range(20):
        pair = [rng.integers(1, 6, size=rng.integers(1, 9)) for _ in range(2)]
        texts = [" ".join(map(str, tokens)) for tokens in pair]
        wanted = rouge_score(*texts, normalizer=str, tokenizer=str.split, rouge_keys=tuple(names.values()))
        found = rouge([pair[0]], [pair[1]])
        for name, key in names.items():
            assert found[name] == pytest.approx(float(wanted[f"{key}_fmeasure"]), abs=1e-6)


def test_too_many_guesses_cost():
    guesses = [*PIECES, np.array([1, 9]), np.array([9, 9])]
    assert dict(matched(guesses, PIECES)) == {0: 0, 1: 1}
    assert rouge(guesses, PIECES)["rouge_l"] == pytest.approx(1 / 2)
    assert bag_f1(guesses, PIECES) == pytest.approx(2 * 8 / 20)
