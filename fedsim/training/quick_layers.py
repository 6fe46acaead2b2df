"""The same network, computed in ways that suit one thread of a CPU.

The plain forms of these layers serve every device, `torch.func` and attacks that differentiate twice. Local
training on a CPU needs none of that, and spends most of a simulation's time.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

from fedsim.models.images.residual import Residual
from fedsim.training.convolution import ChannelsLastConvolution, fits_beside, is_quick
from fedsim.training.group_norm import ChannelsLastGroupNorm


class BatchFirstEncoder(nn.Module):
    """What an encoder `layer` computes, if every position sees all others or those before it.

    torch's layer moves the batch into the second place and back, and copies queries, keys and values to
    places of their own. This one computes with views.
    """

    def __init__(self, layer: nn.TransformerEncoderLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, sequence: torch.Tensor, src_mask: torch.Tensor | None = None, is_causal: bool = False
    ) -> torch.Tensor:
        """(n, length, width) to the same shape; a mask is the causal one, and says no more than the flag."""
        layer = self.layer
        sequence = sequence + self._attention(layer.norm1(sequence), is_causal=is_causal)
        hidden = nn.functional.gelu(layer.linear1(layer.norm2(sequence)))
        further: torch.Tensor = sequence + layer.linear2(hidden)
        return further

    def _attention(self, x: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
        attention = self.layer.self_attn
        n, length, width = x.shape
        packed = linear(x, attention.in_proj_weight, attention.in_proj_bias)
        heads = packed.view(n, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = heads
        mixed = scaled_dot_product_attention(queries, keys, values, is_causal=is_causal)
        projected: torch.Tensor = attention.out_proj(mixed.transpose(1, 2).reshape(n, length, width))
        return projected


class NormalisedResidual(nn.Module):
    """What a block computes whose body ends with group normalisation: norm, sum and ReLU in one go."""

    def __init__(self, block: Residual) -> None:
        super().__init__()
        assert isinstance(block.body, nn.Sequential)
        *others, norm = block.body
        assert isinstance(norm, ChannelsLastGroupNorm)
        norm.rectified = True
        self.body, self.norm, self.shortcut = nn.Sequential(*others), norm, block.shortcut

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to (n, channels, rows, columns)."""
        outputs: torch.Tensor = self.norm(self.body(maps), self.shortcut(maps))
        return outputs


class HalvingResidual(nn.Module):
    """The same of a block whose two paths begin with convolutions of stride 2: they are done together."""

    def __init__(self, block: NormalisedResidual) -> None:
        super().__init__()
        assert isinstance(block.shortcut, nn.Sequential)
        (first, *body), (beside, *others) = block.body, block.shortcut
        assert isinstance(first, ChannelsLastConvolution)
        assert isinstance(beside, nn.Conv2d)
        self.first, self.body, self.norm = first, nn.Sequential(*body), block.norm
        self.beside, self.shortcut = beside, nn.Sequential(*others)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to (n, channels, rows, columns)."""
        first, beside = self.first.beside(maps, self.beside)
        outputs: torch.Tensor = self.norm(self.body(first), self.shortcut(beside))
        return outputs


def quickened(module: nn.Module, *, channels_last: bool) -> nn.Module:
    """The module with quick layers in place of others; parameters and their order are the same.

    `module` is one of the library's, and is changed. Its inputs must be `channels_last` if that is said.
    """
    for name, child in module.named_children():
        if type(child) is nn.TransformerEncoderLayer and _is_quick(child):
            setattr(module, name, BatchFirstEncoder(child))
        elif isinstance(child, nn.GroupNorm) and channels_last:
            setattr(module, name, ChannelsLastGroupNorm(child))
        elif channels_last and is_quick(child):
            setattr(module, name, ChannelsLastConvolution(child))
        else:
            setattr(module, name, quickened(child, channels_last=channels_last))
    if isinstance(module, nn.Sequential):
        _merge_rectifiers(module)
    if isinstance(module, Residual) and _ends_with_norm(module.body):
        block = NormalisedResidual(module)
        return HalvingResidual(block) if _begins_with_halving(block) else block
    return module


def _is_quick(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether it is one of `fedsim.models.encoder`, and draws no random numbers."""
    return layer.norm_first and layer.self_attn.batch_first and not layer.dropout.p


def _ends_with_norm(body: nn.Module) -> bool:
    return isinstance(body, nn.Sequential) and isinstance(body[-1], ChannelsLastGroupNorm)


def _begins_with_halving(block: NormalisedResidual) -> bool:
    first, shortcut = block.body[0], block.shortcut
    if not isinstance(first, ChannelsLastConvolution) or not isinstance(shortcut, nn.Sequential):
        return False
    return fits_beside(shortcut[0], first.layer)


def _merge_rectifiers(layers: nn.Sequential) -> None:
    for place in range(len(layers) - 1):
        norm = layers[place]
        if isinstance(norm, ChannelsLastGroupNorm) and isinstance(layers[place + 1], nn.ReLU):
            norm.rectified, layers[place + 1] = True, nn.Identity()
