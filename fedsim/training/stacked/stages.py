"""Which networks can be stacked: what they are made of, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedsim.training.stacked.activation import Activation, Identity, Relu, Sigmoid

_IDENTITY = Identity()
_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: Relu(), nn.Sigmoid: Sigmoid()}


@dataclass(frozen=True)
class Stage:
    """A layer with parameters, with the activation and pooling that follow it."""

    layer: nn.Conv2d | nn.Linear
    activation: Activation = _IDENTITY
    pool: int = 1


def stages_of(module: nn.Module) -> list[Stage] | None:
    """A network as stages that can be stacked; None if any part of it cannot.

    It knows chains of convolutions with stride 1, a Flatten and linear layers. A ReLU or a sigmoid may
    follow each of them, and a 2×2 max-pooling each convolution.
    """
    stages: list[Stage] = []
    is_flat = False
    for part in _parts(module):
        latest = stages[-1] if stages else None
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
            is_flat = True
        elif isinstance(part, nn.Linear | nn.Conv2d) and _is_plain(part, is_flat):
            stages.append(Stage(part))
        elif latest and type(part) in _ACTIVATIONS and latest.activation is _IDENTITY:
            stages[-1] = replace(latest, activation=_ACTIVATIONS[type(part)])
        elif latest and latest.pool == 1 and not is_flat and _halves(part):
            stages[-1] = replace(latest, pool=2)
        else:
            return None
    if not stages or not isinstance(stages[-1].layer, nn.Linear):
        return None
    # A layer that is used twice, or that does not learn, cannot be stacked.
    found = [id(parameter) for stage in stages for parameter in stage.layer.parameters()]
    return stages if found == [id(p) for p in module.parameters() if p.requires_grad] else None


def are_few(examples: int, stages: Sequence[Stage]) -> bool:
    """Whether a client owns so few examples that `FirstLinear` pays."""
    first = stages[0].layer
    return isinstance(first, nn.Linear) and examples <= first.out_features


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _parts(part)
    elif type(module) is not nn.Identity:
        yield module


def _is_plain(layer: nn.Linear | nn.Conv2d, is_flat: bool) -> bool:
    if type(layer) is nn.Linear:
        return is_flat
    return (
        type(layer) is nn.Conv2d
        and not is_flat
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def _halves(part: nn.Module) -> bool:
    return (
        type(part) is nn.MaxPool2d
        and all(size in (2, (2, 2)) for size in (part.kernel_size, part.stride))
        and part.padding in (0, (0, 0))
        and part.dilation in (1, (1, 1))
        and not part.ceil_mode
        and not part.return_indices
    )
