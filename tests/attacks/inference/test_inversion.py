"""The optimisers: exact where the paper's are good, and honest about what they were given."""

import numpy as np
import pytest

from attacks.inference.evidence import Evidence
from attacks.inference.inversion.dlg import Dlg
from attacks.inference.inversion.geiping import Geiping, apportioned
from fedsim.core.errors import UserError
from fedsim.models import Mlp
from fedsim.training.local_work import LocalWork
from scenarios.run.inference.similarity import match, psnr_db
from tests.helpers.updates import DATA, evidence_on, knowledge_of

SMOOTH = Mlp(hidden=16, activation="sigmoid")
ONE = LocalWork(dataset_size=1, lr=0.1)


def decibels(guess, positions):
    images = DATA.train.inputs[positions].astype(np.float32) / np.float32(255)
    return psnr_db(match(guess.values[0], images), images)


@pytest.mark.slow
def test_dlg_finds_one_image():
    seen = []
    guess = Dlg(restarts=1).infer(
        evidence_on(SMOOTH, ONE, [7]),
        knowledge_of(SMOOTH, ONE),
        rng=np.random.default_rng(0),
        watch=lambda done, total, images=None: seen.append((done, total, images)),
    )
    assert decibels(guess, [7]) > 36.5
    assert 0 < guess.iterations <= 300
    assert all(0 < done <= total for done, total, _ in seen)
    assert all(images.shape == (1, 32, 32, 3) for *_, images in seen)


def test_dlg_takes_a_sum_for_as_many_images_as_clients():
    pair = [evidence_on(SMOOTH, ONE, [k]) for k in (3, 4)]
    mean = Evidence(np.mean([e.updates for e in pair], axis=0), pair[0].starts, clients=2)
    guess = Dlg(restarts=1, iterations=5).infer(mean, knowledge_of(SMOOTH, ONE), rng=np.random.default_rng(0))
    assert guess.values.shape == (1, 2, 32, 32, 3)


@pytest.mark.parametrize(
    "work", [LocalWork(dataset_size=4, batch_size=2), LocalWork(local_epochs=2)], ids=repr
)
def test_dlg_needs_full_gradients(work):
    with pytest.raises(UserError, match="dlg needs full gradients"):
        Dlg().check(knowledge_of(SMOOTH, work))


@pytest.mark.parametrize(("labels", "steps"), [("inferred", None), ("known", None), ("inferred", 1)])
def test_geiping_comes_nearer_than_grey(labels, steps):
    """Two images, two epochs of single batches, unrolled, or one long step in their place."""
    work = LocalWork(dataset_size=2, batch_size=1, local_epochs=2)
    evidence, positions = evidence_on(Mlp(hidden=64), work, [0, 2]), [0, 2]
    shares = np.bincount(DATA.train.targets[positions], minlength=10)[None].astype(np.float32) / np.float32(2)
    attack = Geiping(iterations=60, labels=labels, steps=steps)
    knowledge = knowledge_of(Mlp(hidden=64), work)
    attack.check(knowledge)
    assert attack.knows_labels == (labels == "known")
    given = Evidence(evidence.updates, evidence.starts, 1, shares if labels == "known" else None)
    guess = attack.infer(given, knowledge, rng=np.random.default_rng(0))
    images = DATA.train.inputs[positions].astype(np.float32) / np.float32(255)
    grey = psnr_db(np.full_like(images, 0.5), images)
    assert decibels(guess, positions).mean() > grey.mean() + 3
    assert guess.values.min() >= 0
    assert guess.values.max() <= 1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_few_long_steps_go_as_far_as_the_clients(momentum):
    """Four steps: with momentum they are far from the speed that many would reach."""
    work = LocalWork(dataset_size=8, batch_size=4, local_epochs=2, lr=0.1, momentum=momentum)
    rng = np.random.default_rng(0)
    long, batches = Geiping(steps=2)._training(8, knowledge_of(SMOOTH, work), rng)
    powers = [sum(momentum**i for i in range(step)) for step in (1, 2, 3, 4)]
    assert long.lr * len(batches) == pytest.approx(0.1 * sum(powers))
    assert long.momentum == 0


@pytest.mark.parametrize(
    ("size", "fraction", "lengths"), [(40, 1.0, [16, 16, 8]), (64, 0.5, [32, 32]), (64, 0.01, [64])]
)
def test_geiping_takes_as_many_steps_as_the_client(size, fraction, lengths):
    work = LocalWork(dataset_size=size, batch_size=16, data_fraction=fraction)
    _, batches = Geiping()._training(size, knowledge_of(SMOOTH, work), np.random.default_rng(0))
    assert [len(batch) for batch in batches] == lengths
    assert sorted(np.concatenate(batches)) == list(range(size)), "all images, each once"


def test_geiping_guesses_no_more_images_than_asked():
    work = LocalWork(dataset_size=6, batch_size=2)
    evidence = evidence_on(Mlp(hidden=8), work, np.arange(6), clients=3)
    guess = Geiping(iterations=1, images=4).infer(
        evidence, knowledge_of(Mlp(hidden=8), work), rng=np.random.default_rng(0)
    )
    assert guess.values.shape == (1, 4, 32, 32, 3)


def test_restarts_cost_iterations_and_the_seed_decides():
    work = LocalWork(dataset_size=1)
    evidence, knowledge = evidence_on(SMOOTH, work, [1]), knowledge_of(SMOOTH, work)
    attack = Geiping(iterations=3, restarts=2)
    first, again, other = (attack.infer(evidence, knowledge, rng=np.random.default_rng(s)) for s in (0, 0, 1))
    assert first.iterations == 6
    assert np.array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)


@pytest.mark.parametrize(
    ("shares", "count", "whole"),
    [([0.5, 0.5], 3, [2, 1]), ([0.2, 0.3, 0.5], 10, [2, 3, 5]), ([0.4, 0.3, 0.3], 1, [1, 0, 0])],
)
def test_apportioned_labels_sum_to_the_number_of_images(shares, count, whole):
    assert apportioned(np.array(shares, dtype=np.float32), count).tolist() == whole
