"""From one update to the pieces of text behind it. This module imports torch."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attacks.inference.bags import moved_words, word_counts
from attacks.inference.knowledge import Knowledge
from attacks.inference.spans import Spanned, Tokens, spanned
from fedsim.models.text.networks import TransformerNetwork

COMPLETE = 0.8
"""Share of the typed words from which the sequences are the whole text: then a word that is nowhere in the
spans was not typed, whatever its row says."""


class TextRecovery:
    """Reads updates of the server's own network, whose word vectors come first."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._length = knowledge.task.input_shape[0]
        # Without dropout: the attacker does not know which neurons a device dropped.
        self._network = copy.deepcopy(knowledge.module).eval()
        self._names = [name for name, _ in self._network.named_parameters()]

    def pieces(
        self, update: NDArray[np.float32], start: NDArray[np.float32], typed: NDArray[np.bool_] | None
    ) -> list[Tokens]:
        """The sequences, then all words that are in none of them, the most frequent first, as −token.

        `typed` (words,) says which words were typed; if it is not given, the rows that moved do.
        """
        parts = self._knowledge.layers(update)
        self._load(start)
        if typed is None:
            typed = moved_words(parts[0])
        biases = [part for part in parts if part.shape == typed.shape]
        counts = word_counts(self._network, biases[-1], typed) if biases else typed.astype(np.int64)
        sequences: list[Tokens] = []
        if (found := self._spanned(parts)) is not None:
            sequences = found.sequences
            held = np.isin(np.arange(len(typed)), np.concatenate([*sequences, np.zeros(0, np.int64)]))
            # After several steps the spans know the words of the first step only.
            if held[typed].mean() >= COMPLETE:
                counts[~found.words] = 0
            counts[held] = 0
        often = np.argsort(-counts, kind="stable")
        bag = -np.repeat(often, counts[often])
        rest = np.split(bag, range(self._length, len(bag), self._length)) if len(bag) else []
        return [*sequences, *rest]

    def _load(self, start: NDArray[np.float32]) -> None:
        number = sum(parameter.numel() for parameter in self._network.parameters())
        nn.utils.vector_to_parameters(torch.from_numpy(np.array(start[:number])), self._network.parameters())

    def _spanned(self, parts: list[NDArray[np.float32]]) -> Spanned | None:
        """What the gradients of a transformer span; None for other networks."""
        if not isinstance(self._network, TransformerNetwork):
            return None
        tensors = (torch.from_numpy(np.array(part)) for part in parts)
        return spanned(self._network, dict(zip(self._names, tensors, strict=True)), self._length)
