"""Quick layers compute what the plain ones compute, and hold the same parameters in the same order."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedsim.models import Resnet, Vit
from fedsim.models.text.networks import TransformerNetwork
from fedsim.tasks.images import ImageClassification
from fedsim.training.convolution import ChannelsLastConvolution, is_quick
from fedsim.training.group_norm import ChannelsLastGroupNorm
from fedsim.training.local_training import FlatModel
from fedsim.training.quick_layers import BatchFirstEncoder, HalvingResidual, NormalisedResidual, quickened

TASK = ImageClassification(tuple("abcd"), (8, 12, 3))
TOLERANCE = 1e-5
"""Relative to the largest number: sums in another order."""


def images(channels=3, height=8, width=12):
    drawn = torch.randn(5, channels, height, width, generator=torch.Generator().manual_seed(1))
    return drawn.contiguous(memory_format=torch.channels_last)


def text_network():
    return TransformerNetwork(9, 6, 8, layers=2, heads=2, hidden=12, dropout=0.0, tied=True)


def outputs_and_gradients(module, inputs):
    """Of a weighted sum of the outputs, with weights that no two entries share."""
    outputs = module(inputs)
    gradients = torch.autograd.grad(
        (outputs * torch.arange(1, 1 + outputs.numel()).view_as(outputs)).sum(), [*module.parameters()]
    )
    return [outputs.detach(), *gradients]


def assert_close(some, others):
    for one, other in zip(some, others, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= TOLERANCE * other.abs().max()


@pytest.mark.parametrize(
    ("build", "inputs", "kinds"),
    [
        (
            lambda: Resnet(width=8, blocks=2).build(TASK),
            images(),
            {ChannelsLastGroupNorm, NormalisedResidual, HalvingResidual},
        ),
        (
            lambda: Resnet(width=8, norm="layer").build(TASK),
            images(),
            {ChannelsLastGroupNorm, NormalisedResidual, HalvingResidual},
        ),
        (lambda: Resnet(width=8, norm="batch").build(TASK), images(), set()),
        (lambda: Vit(width=8, heads=2, hidden=12, layers=2).build(TASK), images(), {BatchFirstEncoder}),
        (lambda: Vit(width=8, heads=2, hidden=12, dropout=0.1).build(TASK).eval(), images(), set()),
        (text_network, torch.arange(12).view(2, 6) % 9, {BatchFirstEncoder}),
    ],
    ids=["group", "layer", "batch", "vit", "dropout", "causal"],
)
def test_a_quick_network_is_the_same_function(build, inputs, kinds):
    torch.manual_seed(0)
    plain = build()
    quick = quickened(copy.deepcopy(plain), channels_last=True)
    assert kinds == {type(m) for m in quick.modules()} & {
        ChannelsLastGroupNorm,
        NormalisedResidual,
        HalvingResidual,
        BatchFirstEncoder,
    }
    for mine, theirs in zip(quick.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert_close(outputs_and_gradients(quick, inputs), outputs_and_gradients(plain, inputs))


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("has_shortcut", [False, True])
def test_every_gradient_of_the_normalisation(rectified, has_shortcut):
    norm = nn.GroupNorm(2, 6)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
    x, shortcut = (images(6).requires_grad_() for _ in range(2))
    quick = ChannelsLastGroupNorm(norm, rectified=rectified)(x, shortcut if has_shortcut else None)
    plain = norm(x) + (shortcut if has_shortcut else 0)
    plain = plain.relu() if rectified else plain
    wanted = [x, norm.weight, norm.bias, *([shortcut] if has_shortcut else [])]
    # Planes one after the other: the loops must arrange such a gradient themselves.
    above = torch.randn(x.shape)
    assert_close([quick], [plain])
    assert_close(torch.autograd.grad(quick, wanted, above), torch.autograd.grad(plain, wanted, above))


def test_the_normalisation_is_never_differentiated_twice_in_silence():
    x = images(6).requires_grad_()
    with pytest.raises(RuntimeError, match="numpy"):
        torch.autograd.grad(ChannelsLastGroupNorm(nn.GroupNorm(2, 6))(x).square().sum(), x, create_graph=True)


@pytest.mark.parametrize(
    ("channels", "outputs", "stride", "sides"),
    [
        (6, 10, 2, (8, 12)),
        (6, 10, 2, (7, 5)),
        (6, 10, 2, (1, 1)),
        (256, 10, 2, (4, 5)),
        (256, 10, 1, (4, 5)),
        (256, 260, 1, (4, 5)),
        (256, 260, 2, (3, 8)),
    ],
    ids=["halved", "odd", "one place", "wide halved", "wide", "larger than maps", "larger, odd"],
)
def test_every_gradient_of_the_convolution(channels, outputs, stride, sides):
    layer = nn.Conv2d(channels, outputs, 3, stride=stride, padding=1, bias=False)
    FlatModel(layer, channels_last=True)
    assert is_quick(layer)
    x = images(channels, *sides).requires_grad_()
    quick, plain = ChannelsLastConvolution(layer)(x), layer(x)
    assert_close([quick], [plain])
    # Planes one after the other: the loops must arrange such a gradient themselves.
    above = torch.randn(plain.shape)
    wanted = [x, layer.weight]
    assert_close(torch.autograd.grad(quick, wanted, above), torch.autograd.grad(plain, wanted, above))


@pytest.mark.parametrize("sides", [(8, 12), (7, 5)])
def test_every_gradient_of_two_convolutions_of_the_same_maps(sides):
    layer = nn.Conv2d(6, 10, 3, stride=2, padding=1, bias=False)
    shortcut = nn.Conv2d(6, 10, 1, stride=2, bias=False)
    x = images(6, *sides).requires_grad_()
    quick, plain = ChannelsLastConvolution(layer).beside(x, shortcut), (layer(x), shortcut(x))
    assert_close(quick, plain)
    above, wanted = [torch.randn(y.shape) for y in plain], [x, layer.weight, shortcut.weight]
    assert_close(torch.autograd.grad(quick, wanted, above), torch.autograd.grad(plain, wanted, above))


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(4, 4, 3, padding=1, stride=2),
        nn.Conv2d(4, 4, 3, stride=2, bias=False),
        nn.Conv2d(4, 4, 3, padding=1, stride=2, groups=2, bias=False),
        nn.Conv2d(4, 4, 3, padding=1, stride=2, padding_mode="reflect", bias=False),
        nn.Conv2d(4, 4, 3, padding=1, bias=False),
    ],
    ids=["bias", "no border", "groups", "reflected", "small kernel, large maps"],
)
def test_other_convolutions_are_left_to_torch(other):
    assert not is_quick(other)


def test_the_convolution_is_never_differentiated_twice_in_silence():
    x = images(6).requires_grad_()
    layer = ChannelsLastConvolution(nn.Conv2d(6, 10, 3, stride=2, padding=1, bias=False))
    with pytest.raises(RuntimeError, match="numpy"):
        torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)


def test_wide_kernels_are_arranged_and_read_in_the_usual_order():
    wide = nn.Conv2d(256, 2, 3)
    module = nn.Sequential(wide, nn.Conv2d(2, 3, 1))
    plain, arranged = FlatModel(copy.deepcopy(module)), FlatModel(module, channels_last=True)
    assert wide.weight.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(arranged.read(), plain.read())
    other = np.arange(plain.dim, dtype=np.float32)
    arranged.load(other)
    assert np.array_equal(wide.weight.detach().numpy().ravel(), other[: 2 * 256 * 9])
    assert np.array_equal(arranged.read(), other)
    away = np.empty_like(other)
    arranged.write_difference(other - 1, out=away)
    assert np.array_equal(away, np.ones_like(other))
