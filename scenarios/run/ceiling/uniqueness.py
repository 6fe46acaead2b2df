"""Without noise: what somebody gets right who draws each column from all that fit everything published.

This needs no assumption about the updates, unlike the genie's likelihood. A column is unique if the attack or
a certificate proves it, or if the counts leave no choice. If all columns that fit can be listed, a guess
among n of them is right with a chance of 1/n. Otherwise nothing is shown either way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation.columns.enumeration import Enumeration
from attacks.disaggregation.instance import Instance
from attacks.disaggregation.proof.certificate import unique
from attacks.disaggregation.workers import Threads

MOST_LISTED = 32
"""Most clients for whom all columns are listed, which can take a second per client."""


def unique_fraction(instance: Instance, P: NDArray[np.uint8], proved: NDArray[np.bool_]) -> float | None:
    """The expected fraction of right columns if each client's is drawn from all that fit; None if unknown.

    P (rounds, K) is the truth; `proved` (K,) are clients whose right column the attack has proved.
    """
    columns = np.ascontiguousarray(P.T)
    settled = proved | instance.determined
    if not instance.exact or not instance.holds_all_columns or not instance.windows.meet(columns).all():
        return 1.0 if settled.all() else None
    instance = instance.sharpened()
    open_ = np.flatnonzero(~settled)
    if len(open_):
        settled[open_[unique(instance, columns[open_], open_, Threads())]] = True
    open_ = np.flatnonzero(~settled)
    if len(open_) > MOST_LISTED:
        return None
    enumeration = Enumeration(instance)
    listed = [enumeration.columns(client) for client in open_.tolist()]
    if any(columns is None or len(columns) == 0 for columns in listed):
        return None
    chances = sum(1 / len(columns) for columns in listed if columns is not None)
    return float((settled.sum() + chances) / len(settled))
