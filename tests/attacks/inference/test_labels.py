import numpy as np
import pytest
from torch import nn

from attacks.inference.labels import LabelInference, total_step
from fedsim.core.errors import UserError
from fedsim.models import Cnn, Custom, Lenet, Mlp, Resnet
from fedsim.training.local_work import LocalWork
from tests.helpers.updates import DATA, evidence_on, knowledge_of

ATTACK = LabelInference()
# Half of the images from one class, the others from two more: far from what a guess would be.
SKEWED = np.concatenate([np.flatnonzero(DATA.train.targets == c)[:n] for c, n in ((3, 16), (5, 10), (8, 6))])


@pytest.mark.parametrize("model", [Lenet(), Mlp(), Mlp(activation="sigmoid"), Cnn(), Resnet()], ids=repr)
@pytest.mark.parametrize(
    "work",
    [LocalWork(), LocalWork(local_epochs=4), LocalWork(batch_size=32, momentum=0.9)],
    ids=["epoch", "epochs", "momentum"],
)
def test_shares_are_those_of_the_images(model, work):
    guess = ATTACK.infer(
        evidence_on(model, work, SKEWED), knowledge_of(model, work), rng=np.random.default_rng(0)
    )
    truth = np.bincount(DATA.train.targets[SKEWED], minlength=10) / 32
    assert guess.values.shape == (1, 10)
    assert guess.values.sum() == pytest.approx(1, abs=1e-5)
    assert guess.values.min() >= 0
    uniform = np.abs(0.1 - truth).sum() / 2
    assert np.abs(guess.values[0] - truth).sum() / 2 < min(0.2, uniform / 3)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_reach_is_how_far_a_constant_gradient_goes(momentum):
    work = LocalWork(dataset_size=40, batch_size=16, local_epochs=2, lr=0.1, momentum=momentum)
    place = velocity = 0.0
    for _ in range(6):
        velocity = momentum * velocity + 1
        place += 0.1 * velocity
    assert total_step(work) == pytest.approx(place)


def headless(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(image_shape)), classes, bias=False))


def test_a_model_without_a_last_bias_is_refused():
    knowledge = knowledge_of(Custom(factory=f"{__name__}:headless"), LocalWork())
    with pytest.raises(UserError, match="ends in a linear layer with a bias"):
        ATTACK.check(knowledge)
