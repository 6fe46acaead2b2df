"""How often each word was typed, from the change of the bias of the output layer.

The gradient of this bias is the mean prediction minus the share of each token among the targets. Words that
were not typed show how far the step went, because only the prediction moves their bias.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

STILL = 1e-3
"""A row whose change is shorter than this part of the longest one stands still: the rest is rounding."""


def moved_words(table: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(words,) which rows of a table's change (words, width) are more than rounding."""
    length = np.linalg.norm(table, axis=1)
    return np.asarray(length > STILL * length.max(initial=0))


def word_counts(
    network: nn.Module, bias_change: NDArray[np.float32], typed: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """(words,) how often each word of a client follows another; at least once if it was `typed`.

    If all words seem typed, as with tied vectors, those whose bias grew were. The prediction is taken from
    the network, after every typed word alone. Most words of a text occur once, which gives the unit.
    """
    change = bias_change.astype(np.float64)
    if typed.all():
        typed = change > 0
    counts = np.zeros(len(typed), dtype=np.int64)
    if not typed.any() or typed.all():
        return counts
    with torch.inference_mode():
        logits = network(torch.from_numpy(np.flatnonzero(typed))[:, None])[:, 0]
        predicted = logits.double().softmax(dim=1).mean(dim=0).numpy()
    step = -change[~typed].sum() / predicted[~typed].sum()
    shares = np.maximum(predicted + change / step, 0)[typed] if step > 0 else np.ones(int(typed.sum()))
    positive = shares[shares > 0]
    unit = float(np.median(positive)) if len(positive) else 1.0
    once = positive[(positive > unit / 2) & (positive < 1.5 * unit)]
    counts[typed] = np.maximum(1, np.rint(shares / (once.mean() if len(once) else unit)))
    return counts
