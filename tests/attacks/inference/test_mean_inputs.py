import numpy as np
import pytest
import torch
from torch import nn

from attacks.inference.mean_inputs import Layer, mean_inputs
from fedsim.models import Lenet, Mlp
from fedsim.training.local_work import LocalWork
from tests.helpers.updates import DATA, knowledge_of, update_on

IMAGES, NEURONS, INPUTS = 5, 8, 20
TYPICAL = np.full(INPUTS, 1.5)
SEEN = TYPICAL + np.eye(INPUTS)[:IMAGES]
"""Inputs that differ from the typical one by equal amounts in directions of their own."""


def changes_of(errors):
    """What errors (neurons, images) of any sign do to a layer that sees `SEEN`."""
    return (errors @ np.column_stack((SEEN, np.ones(IMAGES))))[None]


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_any_sign_leave_the_mean_input(seed):
    """By symmetry the nearest point to the typical input weighs all images alike, whatever their errors."""
    errors = np.random.default_rng(seed).standard_normal((NEURONS, IMAGES))
    found = mean_inputs(changes_of(errors), TYPICAL, damping=1e-15)
    np.testing.assert_allclose(found[0], SEEN.mean(axis=0), atol=1e-4)


def test_the_scale_of_an_update_does_not_matter():
    errors = np.random.default_rng(0).standard_normal((NEURONS, IMAGES))
    small, large = (mean_inputs(s * changes_of(errors), TYPICAL, damping=1e-3) for s in (1e-4, 1))
    np.testing.assert_allclose(small, large)


@pytest.mark.parametrize("left", [0, INPUTS], ids=["nothing", "no bias"])
def test_a_layer_that_tells_no_mean_leaves_the_typical_input(left):
    """A defence may send none of a layer, or none of its bias."""
    change = changes_of(np.random.default_rng(0).standard_normal((NEURONS, IMAGES)))
    change[:, :, left:] = 0
    np.testing.assert_array_equal(mean_inputs(change, TYPICAL, damping=1e-5), TYPICAL[None])


def test_a_layer_is_found_behind_convolutions():
    work = LocalWork(dataset_size=6, batch_size=6)
    update, _ = update_on(Lenet(), work, DATA.train.inputs[:6], DATA.train.targets[:6])
    knowledge = knowledge_of(Lenet(), work)
    layer = Layer.first(knowledge.module)
    weight, bias = knowledge.layers(update)[4:6]
    np.testing.assert_array_equal(
        layer.changes(update[None])[0], np.column_stack((weight, bias)), strict=True
    )


def test_the_mean_input_of_real_training_is_that_of_the_clients_images():
    """Nearer to the client's own mean image than the typical image is, by far."""
    work = LocalWork(dataset_size=8, batch_size=4, local_epochs=2)
    update, _ = update_on(Mlp(hidden=32), work, DATA.train.inputs[:8], DATA.train.targets[:8])
    module = knowledge_of(Mlp(hidden=32), work).module
    layer = Layer.first(module)
    images = DATA.task.as_inputs(DATA.train.inputs)
    inputs = layer.inputs(module, images)
    np.testing.assert_allclose(inputs, images.flatten(1).numpy())
    typical, mine = inputs[8:].mean(axis=0), inputs[:8].mean(axis=0)
    found = mean_inputs(layer.changes(update[None]), typical, damping=1e-6)[0]
    assert np.linalg.norm(found - mine) < 0.5 * np.linalg.norm(typical - mine)


def test_a_network_without_such_a_layer_has_none():
    assert Layer.first(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Linear(2, 2, bias=False))) is None
    assert Layer.first(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 3))).begin == 4


def test_where_a_layer_sees_several_positions_their_mean_counts():
    module = nn.Linear(3, 2)
    images = torch.arange(24.0).reshape(2, 4, 3)
    inputs = Layer.first(module).inputs(module, images)
    np.testing.assert_allclose(inputs, images.mean(dim=1).numpy())
