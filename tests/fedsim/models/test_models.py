import sys

import numpy as np
import pytest
import torch

from fedsim.core.errors import UserError
from fedsim.models import Cnn, Custom, Lenet, Mlp, Resnet, Resnet18, Vit
from fedsim.tasks.images import ImageClassification
from fedsim.training.local_training import FlatModel, initial_model
from scenarios.run.scenario import load_scenario

CIFAR, LFW = (3, 32, 32), (3, 62, 47)
MODELS = [
    Lenet(),
    Mlp(),
    Cnn(),
    Resnet(),
    Resnet(blocks=2, width=8),
    Resnet(width=8, norm="layer", dropout=0.1),
    Resnet(width=8, norm="batch"),
    Resnet(width=8, norm="batch", statistics="local"),
    Resnet(width=8, norm="batch", statistics="frozen"),
    Resnet18(width=8, blocks=1),
    Vit(width=16, layers=1, hidden=16, dropout=0.1),
]


def build(model, shape=CIFAR, classes=10, seed=0):
    channels, height, width = shape
    task = ImageClassification(tuple(map(str, range(classes))), (height, width, channels))
    return initial_model(model, task, np.random.default_rng(seed))


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize(("shape", "classes"), [(CIFAR, 100), (LFW, 2)], ids=["cifar100", "lfw"])
def test_every_model_takes_every_data_set(model, shape, classes):
    if isinstance(model, Vit) and shape == LFW:
        with pytest.raises(UserError, match=r"model\.patch is 4: it does not divide images of 62×47 pixels"):
            build(model, shape, classes)
        return
    module = build(model, shape, classes)
    assert module(torch.zeros(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_everything_that_training_changes_is_in_the_vector(model):
    """What is in it is federated; what is not starts from the same place for every client."""
    flat = FlatModel(build(model))
    module = flat.module.train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module(torch.rand(4, *CIFAR, generator=torch.Generator().manual_seed(0)))
    flat.load(np.zeros(flat.dim, dtype=np.float32))
    for name, tensor in module.state_dict().items():
        assert not tensor.any() or torch.equal(tensor, before[name]), name
    assert sum(np.prod(shape) for shape in flat.layer_shapes) == flat.dim


def test_shared_statistics_follow_the_parameters():
    shared, local = (FlatModel(build(Resnet(norm="batch", statistics=s))) for s in ("shared", "local"))
    channels = 16 * 3 + 32 * 3 + 64 * 3
    assert shared.dim - local.dim == 2 * channels
    assert shared.layer_shapes[: len(local.layer_shapes)] == local.layer_shapes


def test_frozen_statistics_never_change():
    module = build(Resnet(norm="batch", statistics="frozen")).train()
    before = [buffer.clone() for buffer in module.buffers()]
    module(torch.rand(4, *CIFAR))
    assert all(torch.equal(old, new) for old, new in zip(before, module.buffers(), strict=True))


@pytest.mark.parametrize(
    ("model", "shape", "classes", "dim"),
    [
        (Cnn(), LFW, 2, 167_138),
        (Resnet(), CIFAR, 10, 78_042),
        (Resnet18(), CIFAR, 10, 11_173_962),
        (Vit(), CIFAR, 10, 141_898),
    ],
)
def test_sizes_are_as_documented(model, shape, classes, dim):
    assert FlatModel(build(model, shape, classes)).dim == dim


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_every_parameter_gets_a_gradient(model):
    """And lives in the flat vector: a layer that lived elsewhere would never be trained."""
    flat = FlatModel(build(model))
    images = torch.rand(8, *CIFAR, generator=torch.Generator().manual_seed(0))
    torch.nn.functional.cross_entropy(flat.module(images), torch.arange(8)).backward()
    for name, parameter in flat.module.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    flat.vector.zero_()
    assert all(not parameter.any() for parameter in flat.module.parameters())


def test_a_residual_block_is_its_body_plus_its_shortcut():
    block = build(Resnet(), CIFAR)[3]
    images = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(images), torch.relu(block.body(images) + images))


@pytest.mark.parametrize(("model", "side"), [(Lenet(), 15), (Cnn(), 7), (Resnet(), 3)], ids=repr)
def test_images_that_are_too_small_are_named(model, side):
    with pytest.raises(UserError, match=rf"model\.name: .* {side}×{side}"):
        build(model, (3, side, side))


def test_resnet_width_fits_its_groups(scenario_file):
    with pytest.raises(UserError, match=r"model\.width is 12: expected a multiple of 8"):
        load_scenario(scenario_file, ["model={ name = 'resnet', width = 12 }"])


OWN = """
import random
import torch
from torch import nn

def small(image_shape, classes, hidden=4):
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, hidden), nn.ReLU(),
                         nn.Linear(hidden, classes))

def for_cifar_only(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, classes))

def normalised(image_shape, classes):
    return nn.Sequential(nn.BatchNorm2d(3), small(image_shape, classes))

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("batches", torch.zeros(1))

    def forward(self, x):
        self.batches += 1
        return x

def counting(image_shape, classes):
    return nn.Sequential(Counts(), small(image_shape, classes))

class Dice(nn.Module):
    def forward(self, x):
        return x * random.random()

def dicing(image_shape, classes):
    return nn.Sequential(Dice(), small(image_shape, classes))

def forgetful(image_shape, classes):
    return nn.Sequential(small(image_shape, classes), nn.Dropout())

def double(image_shape, classes):
    return small(image_shape, classes).double()

def broken(image_shape, classes):
    return undefined_name

def leaving(image_shape, classes):
    raise SystemExit(0)

def moody(image_shape, classes):
    network = small(image_shape, classes)
    nn.init.constant_(network[1].bias, random.random())
    return network

def late(image_shape, classes):
    from own_sibling import network
    return network(image_shape, classes)

class Nested:
    factory = staticmethod(small)

no_module = lambda image_shape, classes: "a string"
empty = lambda image_shape, classes: nn.Flatten()
pair = lambda image_shape, classes: small(image_shape, classes + 1)
three = lambda a, b, c: None
number = 7
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A folder with a user's modules in it, in which the command is run."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, content in {
        "own_networks": OWN,
        "own_sibling": "from own_networks import small as network",
        "own_exit": "import sys; sys.exit()",
        "own_syntax": "def (",
        "own_imports": "import no_such_package",
        "own_names": "from torch import no_such_name",
    }.items():
        (tmp_path / f"{name}.py").write_text(content)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "factory", ["own_networks:small", "own_networks:Nested.factory", "own_networks:late"]
)
def test_custom_network(own_module, factory):
    module = build(Custom(factory=factory))
    again = build(Custom(factory=factory))
    assert FlatModel(module).dim == (3072 * 4 + 4) + (4 * 10 + 10)
    assert np.array_equal(FlatModel(module).read(), FlatModel(again).read())


def test_networks_with_running_statistics_and_dropout_can_be_used(own_module):
    module = build(Custom(factory="own_networks:normalised"))
    assert FlatModel(module).dim == (3072 * 4 + 4) + (4 * 10 + 10) + 4 * 3
    # Trying it out leaves no trace.
    assert not module[0].running_mean.any()
    assert module[0].num_batches_tracked == 0
    build(Custom(factory="own_networks:forgetful"))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("own_networks.deeper:f", "own_networks.deeper"),
        ("own_networks:missing", "own_networks has no 'missing'"),
        ("own_networks:Nested.missing", "own_networks has no 'Nested.missing'"),
        ("own_networks:number", "own_networks:number is not a function but int"),
        (
            "own_networks:three",
            "cannot be called with (input_shape, outputs): missing a required argument: 'c'",
        ),
        ("own_networks:no_module", "expected an nn.Module, got str"),
        ("own_networks:empty", "it has no parameters"),
        ("own_networks:pair", "expected outputs of shape (2, 10) for two images, got (2, 11)"),
        ("own_networks:double", "float32 only"),
        ("own_networks:for_cifar_only", "RuntimeError"),
        ("own_networks:broken", "NameError: name 'undefined_name' is not defined"),
        ("own_networks:leaving", "RuntimeError: it calls sys.exit(0)"),
        ("own_exit:f", "own_exit cannot be imported: it calls sys.exit()"),
        ("own_networks:moody", "it returns other weights each time: draw them from torch's generator only"),
        (
            "own_networks:counting",
            "it keeps state beside its parameters and running statistics: 0.batches",
        ),
        ("own_networks:dicing", "draw random numbers from torch's generator only"),
        ("own_syntax:f", "own_syntax cannot be imported: invalid syntax"),
        ("own_imports:f", "own_imports cannot be imported: No module named 'no_such_package'"),
        ("own_names:f", "own_names cannot be imported: cannot import name 'no_such_name'"),
    ],
)
def test_custom_network_that_cannot_be_used(own_module, factory, message):
    shape = LFW if "for_cifar_only" in factory else CIFAR
    with pytest.raises(UserError) as caught:
        build(Custom(factory=factory), shape)
    assert str(caught.value).startswith("model.factory: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("factory", ["own_networks", "own_networks:", ":small", "a b:c", "a:b:c"])
def test_custom_network_wants_module_and_function(scenario_file, factory):
    with pytest.raises(UserError, match=r"model\.factory is .*: expected module:function"):
        load_scenario(scenario_file, [f'model={{ name = "custom", factory = "{factory}" }}'])
