"""Sequences of tokens from the gradient of a transformer's first layer.

One step changes the weights of a fully connected layer by a sum over tokens of (error of its outputs) × (its
input). So the change spans the layer's inputs, if there are fewer tokens than the layer is wide. The input of
the first attention layer is known for every token at every position: tokens whose input lies in the span may
have been there. The input of the neurons behind it depends on all tokens so far. Prefixes are extended token
by token as long as this input lies in the span of its own layer. Petrov et al. (DAGER, 2024) found this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedsim.models.text.networks import TransformerNetwork
from fedsim.tasks.text.next_word import PADDING

ROUNDING = 1e-5
"""Relative singular value below which a direction is rounding. On generated texts (seed 7) rounding left
1e-7, and every true direction was above 1e-4."""
NEAR = 0.03
"""Largest distance from the span, as a share of the input's length. On the same texts true inputs were within
1e-5, and others beyond 0.1."""
MOST_PREFIXES = 256
"""With more, the spans tell too little."""

Tokens = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Span:
    """The span of a layer's inputs, each with a 1 appended; `basis` (rank, width + 1) is orthonormal."""

    basis: torch.Tensor

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor) -> Span:
        """From the changes of a layer's weights (outputs, width) and bias (outputs,)."""
        change = torch.cat((weight, bias[:, None]), dim=1).double()
        _, size, basis = torch.linalg.svd(change, full_matrices=False)
        return cls(basis[size > ROUNDING * size[0]] if size[0] > 0 else basis[:0])

    @property
    def is_full(self) -> bool:
        """Whether it holds nearly every input. Normalised inputs have one dimension less than the width."""
        rank, width = self.basis.shape[0], self.basis.shape[1] - 1
        return rank >= width - 1

    def holds(self, inputs: torch.Tensor) -> torch.Tensor:
        """(…,) whether each of the inputs (…, width) lies in the span."""
        extended = torch.cat((inputs, torch.ones_like(inputs[..., :1])), dim=-1).double()
        extended /= extended.norm(dim=-1, keepdim=True)
        return (extended @ self.basis.T).square().sum(dim=-1) >= 1 - NEAR**2


@dataclass(frozen=True, eq=False)
class Spanned:
    """Sequences that the checks let pass, and `words` (tokens,): whether each is possible at any position."""

    sequences: list[Tokens]
    words: NDArray[np.bool_]


def spanned(network: TransformerNetwork, change: dict[str, torch.Tensor], length: int) -> Spanned | None:
    """What is behind a `change` of the network's parameters, by name; a sequence is as long as checks go.

    None if a span is full, because of too many tokens or of noise.
    """
    layer = network.layers[0]
    assert isinstance(layer, nn.TransformerEncoderLayer)
    attention, neurons = "layers.0.self_attn.in_proj_", "layers.0.linear1."
    first = Span.of(change[f"{attention}weight"], change[f"{attention}bias"])
    second = Span.of(change[f"{neurons}weight"], change[f"{neurons}bias"])
    if first.is_full or second.is_full:
        return None
    placed = network.vectors.weight[:, None] + network.positions.weight[:length]
    there = torch.stack([first.holds(layer.norm1(placed[:, position])) for position in range(length)])
    possible = there.numpy()
    possible[:, PADDING] = False
    ended: list[Tokens] = []
    prefixes = np.zeros((1, 0), dtype=np.int64)
    for tokens in map(np.flatnonzero, possible):
        longer = np.concatenate(
            (np.repeat(prefixes, len(tokens), axis=0), np.tile(tokens, len(prefixes))[:, None]), axis=1
        )
        fits = second.holds(_neuron_inputs(network, longer)).numpy() if len(longer) else np.zeros(0, np.bool_)
        goes_on = fits.reshape(len(prefixes), len(tokens)).any(axis=1)
        ended += [prefix for prefix in prefixes[~goes_on] if len(prefix)]
        prefixes = longer[fits]
        if len(prefixes) > MOST_PREFIXES:
            return None
    return Spanned([*_unexplained(ended, prefixes), *prefixes], np.asarray(possible.any(axis=0)))


def _unexplained(short: list[Tokens], whole: Tokens) -> list[Tokens]:
    """Short sequences that have a token where no whole one has it.

    Others are mostly mixtures of whole ones: at the first positions, inputs are nearly sums of each other.
    """
    return [one for one in short if not all((whole[:, at] == token).any() for at, token in enumerate(one))]


def _neuron_inputs(network: TransformerNetwork, sequences: Tokens) -> torch.Tensor:
    """(n, width) what the neurons of the first layer read at the last position of sequences (n, length)."""
    layer = network.layers[0]
    assert isinstance(layer, nn.TransformerEncoderLayer)
    seen: list[torch.Tensor] = []
    handle = layer.linear1.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, -1]))
    network(torch.from_numpy(sequences))
    handle.remove()
    return seen[0]
