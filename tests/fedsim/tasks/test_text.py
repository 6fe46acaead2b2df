"""Next-word prediction through the ordinary path."""

import numpy as np
import pytest
import torch

from fedsim.core.errors import UserError
from fedsim.models import Gru, Transformer
from fedsim.tasks.text import NextWord
from fedsim.training.local_training import evaluated, initial_model
from scenarios.run.apps import trainer
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World


class Fixed(torch.nn.Module):
    """Every token is equally likely."""

    def forward(self, tokens):
        return torch.zeros(*tokens.shape, 5)


TASK = NextWord(("<pad>", "<other>", "<end>", "a", "b"), 3)


def updated_rows(scenario_file, model, *more):
    """A small world, and which rows of the word vectors client 2 moves in a round."""
    sets = ["data=texts", "data.people_generated=8", f"model={model}", "model.embedding=4", "clients.lr=1.0"]
    world = World.prepare(load_scenario(scenario_file, [*sets, *more]))
    with trainer(world) as training:
        update = training.update(2, 0, world.start)
    rows = world.data.task.outputs
    return world, update[: rows * 4].reshape(rows, 4).any(axis=1)


@pytest.fixture(autouse=True)
def small_scenario(scenario_file):
    text = scenario_file.read_text()
    scenario_file.write_text(
        text.replace("train_images = 200\ntest_images = 50\n", "").replace("hidden = 8\n", "")
    )


def test_loss_and_perplexity_ignore_padding():
    logits = torch.zeros(1, 3, 5)
    targets = torch.tensor([[3, 4, -1]])
    assert TASK.loss(logits, targets).item() == pytest.approx(np.log(5))
    found = evaluated(TASK, Fixed(), torch.zeros(1, 3, dtype=torch.long), targets)
    assert found.further["perplexity"] == pytest.approx(5)
    assert found.metric == 0.0


def test_the_unigram_baseline_by_hand():
    train, test = np.array([[3, 3, 4]]), np.array([[3, 4, -1]])
    assert TASK.unigram_perplexity(train, test) == pytest.approx(1 / np.sqrt(3 / 8 * 2 / 8))


def test_examples_of_another_kind_are_refused():
    tokens = np.zeros((1, 3), np.int32)
    TASK.check("train", tokens, tokens.astype(np.int64))
    with pytest.raises(ValueError, match=r"expected tokens 0\.\.4"):
        TASK.check("train", tokens + 5, tokens.astype(np.int64))
    with pytest.raises(ValueError, match=r"expected \(n, 3\) tokens"):
        TASK.check("train", tokens[:, :2], tokens.astype(np.int64))


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_only_the_rows_of_a_client_s_own_words_move(scenario_file, model):
    """The trace that the sparse attack reads: exact zeros everywhere else."""
    world, moved = updated_rows(scenario_file, model)
    mine = world.data.train[world.owned[2]]
    typed = np.unique(mine.inputs[mine.targets >= 0])
    np.testing.assert_array_equal(np.flatnonzero(moved), typed)


@pytest.mark.parametrize("model", ["gru", "transformer"])
def test_tied_rows_all_move(scenario_file, model):
    _, moved = updated_rows(scenario_file, model, "model.tied=true")
    assert moved.all()


def test_a_transformer_sees_nothing_of_what_follows():
    network = initial_model(Transformer(embedding=4, hidden=4, layers=2), TASK, np.random.default_rng(0))
    tokens = torch.tensor([[3, 4, 3]])
    torch.testing.assert_close(network(tokens)[:, :2], network(tokens[:, :2]))
    assert not torch.equal(network(tokens)[0, 0], network(tokens)[0, 2]), "positions make no difference"


def test_heads_share_the_word_vector(scenario_file):
    with pytest.raises(UserError, match="expected embedding to be a multiple of heads"):
        load_scenario(scenario_file, ["data=texts", "model=transformer", "model.embedding=5"])


def test_text_needs_a_model_for_tokens(scenario_file):
    with pytest.raises(UserError, match="'mlp': it needs inputs that are numbers"):
        World.prepare(load_scenario(scenario_file, ["data=texts"]))
    with pytest.raises(UserError, match="'gru': it needs tokens"):
        Gru().check(World.prepare(load_scenario(scenario_file, [])).data.task)
