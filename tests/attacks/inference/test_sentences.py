"""Texts from one gradient: planted sentences, and where the attack ends."""

import numpy as np
import pytest
import torch

from attacks.inference import Sentences
from attacks.inference.bags import word_counts
from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Auxiliary, Knowledge
from attacks.inference.spans import Span
from fedsim.models import Gru, Transformer
from fedsim.tasks.text import NextWord
from fedsim.training.local_training import FlatModel, initial_model, local_update
from fedsim.training.local_work import LocalWork

TASK = NextWord(("<pad>", *(f"w{number}" for number in range(1, 60))), 6)
WORK = LocalWork(batch_size=8, lr=1.0)
STREAM = np.random.default_rng(3).integers(1, 60, size=18)
INPUTS = np.append(STREAM[:-1], 0).reshape(3, 6)
TARGETS = np.append(STREAM[1:], -1).reshape(3, 6)
TEXTS = {tuple(piece[piece > 0].tolist()) for piece in INPUTS}


def guessed(model, work=WORK):
    """The pieces that the attack reads from one update on the three texts."""
    knowledge = Knowledge(model, TASK, work, Auxiliary(INPUTS[:0], TARGETS[:0], {}))
    flat = FlatModel(initial_model(model, TASK, np.random.default_rng(1)))
    start = flat.read()
    torch.manual_seed(0)
    update = local_update(
        flat,
        start,
        inputs=torch.from_numpy(INPUTS),
        targets=torch.from_numpy(TARGETS),
        loss=TASK.loss,
        settings=work,
        rng=np.random.default_rng(2),
    )
    evidence = Evidence(update[None], start[None])
    Sentences().check(knowledge)
    values = Sentences().infer(evidence, knowledge, rng=np.random.default_rng(0)).values[0]
    return [tuple(int(token) for token in piece if token) for piece in values if piece.any()]


@pytest.mark.parametrize("tied", [False, True])
def test_a_gradient_of_few_tokens_is_its_text(tied):
    found = guessed(Transformer(embedding=32, hidden=32, tied=tied))
    assert {piece for piece in found if piece[0] > 0} == TEXTS


@pytest.mark.parametrize(
    "model",
    [Gru(embedding=8, hidden=8), Transformer(embedding=12, hidden=32)],
    ids=["no attention", "more tokens than the width"],
)
def test_otherwise_the_bag_of_words_remains(model):
    found = guessed(model)
    assert all(token < 0 for piece in found for token in piece)
    words, counts = np.unique([-token for piece in found for token in piece], return_counts=True)
    true, times = np.unique(INPUTS[INPUTS > 0], return_counts=True)
    np.testing.assert_array_equal(words, true)
    assert np.abs(counts - times).max() <= 1


def test_dropout_hides_the_order():
    found = guessed(Transformer(embedding=32, hidden=32, dropout=0.2))
    assert not TEXTS & set(found)


def test_a_span_holds_its_inputs_and_no_others():
    generator = torch.Generator().manual_seed(0)
    inputs, errors = torch.randn(4, 10, generator=generator), torch.randn(12, 4, generator=generator)
    span = Span.of(errors @ inputs, errors.sum(dim=1))
    assert span.basis.shape == (4, 11) and not span.is_full
    assert span.holds(inputs).all()
    assert not span.holds(torch.randn(50, 10, generator=generator)).any()


def test_counts_come_from_the_output_bias():
    """A network that predicts every word alike: the bias moves by share − 1/6, times the step."""

    class Even(torch.nn.Module):
        def forward(self, tokens):
            return torch.zeros(*tokens.shape, 6)

    shares = np.array([0, 1, 3, 1, 0, 0]) / 5
    change = (0.3 * (shares - 1 / 6)).astype(np.float32)
    assert word_counts(Even(), change, shares > 0).tolist() == [0, 1, 3, 1, 0, 0]
