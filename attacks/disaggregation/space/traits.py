"""What the rounds' sums say about traits of the data, such as how much of each label a round holds.

Clients with alike data have alike updates. A model of independent updates takes what these share for common
participants. The smallest tensors of a network show it in plain sight: the bias of the output follows the
labels, and the biases of the first layers follow what the inputs look like. They are so small that they say
next to nothing about who took part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.mapped_memory import in_memory
from attacks.disaggregation.space.whitening import whitened_tile

LARGEST_SHARE = 0.02
"""Largest share of all coordinates that vectors may have: the profiles of more would be the clients' own."""
ROUNDS_PER_TRAIT, MOST_TRAITS = 10, 20
"""Rounds for each trait, because every one takes a part of the evidence, and the most traits."""
LEAST_LENGTH = 1e-3
"""Length of a profile, relative to the longest, below which it is rounding."""


def trait_profiles(
    aggregates: NDArray[Any],
    cohort_sizes: NDArray[np.float64] | None,
    layer_shapes: Sequence[tuple[int, ...]],
) -> NDArray[np.float64]:
    """(rounds, q) the main profiles over the rounds of all vectors of a network, with a mean square of 1.

    Each vector is whitened, and all count alike, whatever their lengths.
    """
    rounds, entries = len(aggregates), [math.prod(shape) for shape in layer_shapes]
    starts = itertools.accumulate(entries, initial=0)
    vectors = [
        slice(start, start + n)
        for start, n, shape in zip(starts, entries, layer_shapes, strict=False)
        if len(shape) == 1
    ]
    if not vectors or sum(v.stop - v.start for v in vectors) > LARGEST_SHARE * aggregates.shape[1]:
        return np.zeros((rounds, 0))
    sizes = None if cohort_sizes is None else cohort_sizes.astype(np.float32)
    parts = []
    for vector in vectors:
        tile = in_memory(aggregates[:, vector], aggregates, np.float32)
        white = whitened_tile(tile[:, :, None], sizes, moving=True)[:, :, 0].astype(np.float64)
        parts.append(white / max(float(np.linalg.norm(white)), np.finfo(np.float64).tiny))
    profiles, lengths, _ = np.linalg.svd(np.hstack(parts), full_matrices=False)
    main = lengths[: min(rounds // ROUNDS_PER_TRAIT, MOST_TRAITS)]
    main = main[main > LEAST_LENGTH * lengths.max()]
    scaled = profiles[:, : len(main)] * main
    return np.asarray(scaled / np.sqrt(np.mean(scaled**2))) if len(main) else scaled
