"""Inner products of pieces of the aggregates on a device, for the Gram matrices of disaggregation."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.space.gram import Product, products_by


def gram_on(device: str) -> AbstractContextManager[None]:
    """In the block, Gram matrices are computed on the device with torch's name; on a CPU NumPy does that."""
    return nullcontext() if device == "cpu" else products_by(products_on(device))


def products_on(device: str) -> Product:
    """One copy to the device and one small one back for every piece; its type stays, single or double."""
    import torch

    owner = os.getpid()

    def products(piece: NDArray[Any]) -> NDArray[Any]:
        # A forked worker cannot use its parent's GPU, and mps has no double precision.
        if os.getpid() != owner or (device == "mps" and piece.dtype == np.float64):
            return np.asarray(piece @ piece.T)
        there = torch.from_numpy(np.ascontiguousarray(piece)).to(device)
        return np.asarray((there @ there.T).cpu().numpy())

    return products
