import numpy as np
import pytest

from attacks.inference.evidence import Evidence
from attacks.inference.inversion.analytic import Analytic
from fedsim.core.errors import UserError
from fedsim.models import Cnn, Lenet, Mlp, Resnet
from fedsim.training.local_work import LocalWork
from scenarios.run.inference.similarity import match, psnr_db
from tests.helpers.updates import DATA, evidence_on, knowledge_of

ATTACK = Analytic()


def recovered(model, work, positions):
    """(n,) PSNR of each image at these positions."""
    knowledge = knowledge_of(model, work)
    ATTACK.check(knowledge)
    guess = ATTACK.infer(evidence_on(model, work, positions), knowledge, rng=np.random.default_rng(0))
    images = DATA.train.inputs[positions] / np.float32(255)
    return psnr_db(match(guess.values[0], images), images)


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("epochs", [1, 5])
def test_one_image_is_exact(activation, epochs):
    work = LocalWork(dataset_size=1, local_epochs=epochs)
    assert recovered(Mlp(hidden=32, activation=activation), work, [7]) > 60


def test_images_that_neurons_tell_apart_are_exact():
    assert recovered(Mlp(hidden=128), LocalWork(dataset_size=6, batch_size=6), np.arange(6)).min() > 60


def test_a_whole_data_set_after_several_epochs():
    """Separated by independence alone; a grey image would have 12 dB."""
    work = LocalWork(dataset_size=24, batch_size=8, local_epochs=4)
    decibels = recovered(Mlp(hidden=64, activation="sigmoid"), work, np.arange(24))
    assert decibels.mean() > 18
    assert decibels.max() > 25


def test_fewer_neurons_than_images_gives_as_many_guesses_as_neurons():
    model, work = Mlp(hidden=5), LocalWork(dataset_size=9)
    guess = ATTACK.infer(
        evidence_on(model, work, np.arange(9)), knowledge_of(model, work), rng=np.random.default_rng(0)
    )
    assert guess.values.shape == (1, 5, 32, 32, 3)


def test_an_update_of_nothing_is_no_error():
    model, work = Mlp(hidden=8), LocalWork(dataset_size=2)
    start = evidence_on(model, work, [0, 1]).starts
    guess = ATTACK.infer(
        Evidence(np.zeros_like(start), start), knowledge_of(model, work), rng=np.random.default_rng(0)
    )
    assert np.isfinite(guess.values).all()


@pytest.mark.parametrize("model", [Lenet(), Cnn(), Resnet()], ids=lambda model: model.name)
def test_a_model_that_begins_otherwise_is_refused(model):
    with pytest.raises(UserError, match=f"first layer is fully connected.*model {model.name} has none"):
        ATTACK.check(knowledge_of(model, LocalWork()))
