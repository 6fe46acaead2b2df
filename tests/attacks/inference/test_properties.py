import numpy as np
import pytest

from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Auxiliary
from attacks.inference.properties import PropertyInference
from fedsim.core.errors import UserError
from fedsim.data import Synthetic
from fedsim.models import Lenet, Mlp
from fedsim.training.local_work import LocalWork
from scenarios.run.inference.properties import auc, auc_interval
from tests.helpers.updates import NOTHING, knowledge_of, update_on

WARM = Synthetic(train_images=600, test_images=400, planted=0.5).load(0)
AUXILIARY = Auxiliary(WARM.test.inputs, WARM.test.targets, WARM.test.attributes)
FEW = Auxiliary(WARM.test.inputs[:9], WARM.test.targets[:9], {"warm": np.arange(9) < 2})
MODEL, WORK = Mlp(hidden=16), LocalWork(dataset_size=12, batch_size=6)
ATTACK = PropertyInference(property="warm", updates=40)


def updates_of(clients, share, seed, model=MODEL):
    """(clients, dim) updates of clients with this share of warm images, and where they started."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(clients):
        positives = round(share * WORK.dataset_size)
        drawn = [
            rng.choice(np.flatnonzero(WARM.train.attributes["warm"] == has), number, replace=False)
            for has, number in ((True, positives), (False, WORK.dataset_size - positives))
        ]
        mine = np.concatenate(drawn)
        update, start = update_on(model, WORK, WARM.train.inputs[mine], WARM.train.targets[mine])
        made.append(update)
    return np.array(made), start


@pytest.fixture(scope="module")
def knowledge():
    found = knowledge_of(MODEL, WORK, AUXILIARY)
    ATTACK.check(found)
    return found


def guesses(knowledge, updates, start, clients=1):
    evidence = Evidence(updates, np.broadcast_to(start, updates.shape), clients)
    return ATTACK.infer(evidence, knowledge, rng=np.random.default_rng(0)).values


def test_clients_with_the_property_are_told_from_others(knowledge):
    with_it, start = updates_of(15, 0.5, seed=1)
    without, _ = updates_of(15, 0.0, seed=2)
    guess = guesses(knowledge, np.concatenate((with_it, without)), start)
    assert guess.shape == (30,)
    assert ((guess >= 0) & (guess <= 1)).all()
    assert auc(guess, np.repeat([True, False], 15)) > 0.85


def test_clients_far_apart_get_probabilities_far_apart():
    """However small the scores are, as they are where a layer has few inputs: a coin would say .5."""
    knowledge, attack = knowledge_of(Lenet(), WORK, AUXILIARY), ATTACK.model_copy(update={"updates": 16})
    with_it, start = updates_of(5, 0.5, seed=6, model=Lenet())
    without, _ = updates_of(5, 0.0, seed=7, model=Lenet())
    updates = np.concatenate((with_it, without))
    evidence = Evidence(updates, np.broadcast_to(start, updates.shape), 1)
    guess = attack.infer(evidence, knowledge, rng=np.random.default_rng(0)).values
    assert np.median(guess[:5]) > 0.75
    assert np.median(guess[5:]) < 0.25


def test_in_a_sum_of_many_the_property_drowns(knowledge):
    """The same attack on means of thirty clients, one of whom has it or none: no better than a coin."""
    others, start = updates_of(60, 0.0, seed=3)
    with_it, _ = updates_of(10, 0.5, seed=4)
    rng = np.random.default_rng(5)
    company = np.array([others[rng.choice(60, 29, replace=False)].sum(axis=0) for _ in range(20)])
    targets = np.concatenate((with_it, others[:10]))
    guess = guesses(knowledge, (company + targets) / np.float32(30), start, clients=30)
    assert np.abs(guess - 0.5).max() < 0.45
    assert auc(guess, np.repeat([True, False], 10)) < 0.85


def test_a_pixel_that_hardly_varies_does_not_decide():
    """Auxiliary images leave a corner dark, all but one; a client lights it, and every update has a trace."""
    dark, lit = AUXILIARY.inputs.copy(), WARM.train.inputs[:12].copy()
    dark[:, 0, 0], lit[:, 0, 0] = 0, 255
    dark[5, 0, 0] = 1
    knowledge = knowledge_of(MODEL, WORK, Auxiliary(dark, AUXILIARY.targets, AUXILIARY.attributes))
    with_it, start = updates_of(15, 0.5, seed=1)
    without, _ = updates_of(15, 0.0, seed=2)
    outlier, _ = update_on(MODEL, WORK, lit, WARM.train.targets[:12])
    traces = np.random.default_rng(7).normal(0, 0.02, 30).astype(np.float32)
    updates = np.concatenate((with_it, without)) + np.outer(traces, outlier)
    assert auc(guesses(knowledge, updates, start), np.repeat([True, False], 15)) > 0.85


def test_updates_are_made_once_for_all_evidence(knowledge):
    updates, start = updates_of(1, 0.0, seed=6)
    guesses(knowledge, updates, start)
    before = len(knowledge.notes)
    guesses(knowledge, updates, start, clients=4)
    assert len(knowledge.notes) == before


@pytest.mark.parametrize(
    ("attack", "auxiliary", "message"),
    [
        (ATTACK, NOTHING, "needs auxiliary examples: set attack.auxiliary_images"),
        (PropertyInference(property="cold"), AUXILIARY, "property is 'cold': expected one of warm"),
        (ATTACK, FEW, "needs 24 auxiliary examples with 'warm' and 48 without; of the 9 granted, 2 have it"),
        (ATTACK, Auxiliary(WARM.test.inputs, WARM.test.targets, {}), "none: these data have no attributes"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_a_line(attack, auxiliary, message):
    with pytest.raises(UserError) as caught:
        attack.check(knowledge_of(MODEL, WORK, auxiliary))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_auc_and_its_interval():
    has = np.repeat([True, False], 50)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=100)
    assert auc(has + 0.0, has) == 1
    assert auc_interval(has + 0.0, has) == (1, 1)
    low, high = auc_interval(noise, has)
    assert low < auc(noise, has) < high
    assert low < 0.5 < high
    assert auc(np.zeros(100), has) == 0.5
    assert auc(noise, has & False) is None
    assert auc_interval(noise, has & False) == (None, None)
