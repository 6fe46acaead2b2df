"""Who hides whom: how many neighbours a device draws, and the probability that they protect it too little.

In a cohort of up to 81 everybody is everybody's neighbour, as in Bonawitz et al. (CCS 2017). In a larger one
every device draws 80 others, as Bell et al. (CCS 2020, section 4) let devices do against a server that lies:
with its own randomness, after the roster is fixed, so that the server has no influence on the draw. These
neighbours hold the shares of the device's secrets. The device shares a mask with each of them, and with
each device that has drawn it. So the cost per client stops growing with the cohort.

Three things can go wrong, and the functions below bound the probability of each. Logarithms are to base 2.

- *Too many colluders.* A device whose neighbours include `needed` colluders has lost its secrets. We ask for
  `_HONEST_HELPERS` less. The number of colluders is hypergeometric, as in Bell et al. (section 3).
- *A cohort in parts.* The server learns the sum of each connected part of the devices that delivered, as in
  Bell et al. (section 4). Whoever hands out a share is on the list of devices that delivered, and shares
  a mask with the owner. So each device on the list has at least `_HONEST_HELPERS` honest neighbours on it,
  whomever the server declares to be gone, and no part is smaller. `log2_split` adds up the probability of no
  edge between two parts, over all parts and all lists.
- *Two lists.* Each honest device signs one list of devices that delivered, and answers after it has verified
  the signatures of some signers that it draws itself. See `log2_two_lists`.

A fourth one costs a round, not privacy: too few neighbours are left to unmask a sum (`log2_void`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, lgamma, log, log2

NEIGHBOURS = 80
"""Neighbours that a device draws in a large cohort. With fewer, a cohort of 1,000 that loses a quarter of its
devices would often be void at the thresholds that privacy asks for."""

ASSUMED_COLLUDERS = 0.1
"""The part of a large cohort that may collude with the server for the bounds to hold."""

LARGEST_COHORT = 1_000
"""Most devices in a cohort: the bound on cohorts in parts gives out somewhat above this."""

PRIVACY_BITS = 40
"""In a large cohort the probability that any device is protected too little is below 2^-PRIVACY_BITS."""

_VOID_BITS = 20
"""Thresholds are as high as dropouts allow: a void round has a probability of 2^-_VOID_BITS."""

_HONEST_HELPERS = 8
"""Honest neighbours whose help a server needs at the least, beside that of all colluders."""


@dataclass(frozen=True)
class Neighbourhood:
    """The shape of a cohort: `size` neighbours per device, `needed` of whom can restore its secrets.

    `checked` is the number of signatures under the list of delivered devices that a device verifies.
    """

    size: int
    needed: int
    checked: int


@lru_cache
def neighbourhood(cohort: int, delivering: int) -> Neighbourhood:
    """The shape of a cohort in which `delivering` devices have to deliver."""
    if cohort <= NEIGHBOURS + 1:
        # A device counts as one of those who restore its secrets; it keeps no share.
        return Neighbourhood(cohort - 1, delivering - 1, delivering)
    colluders = int(ASSUMED_COLLUDERS * cohort)
    needed = next(
        needed
        for needed in range(_HONEST_HELPERS + 1, NEIGHBOURS + 1)
        if log2_too_many_colluders(cohort, colluders, needed) <= -(PRIVACY_BITS + 1)
    )
    # What the bound on dropouts leaves over goes to privacy.
    while log2_void(cohort, cohort - delivering, needed + 1) <= -_VOID_BITS:
        needed += 1
    checked = next(
        checked
        for checked in range(1, delivering + 1)
        if checked == delivering
        or log2_two_lists(cohort, delivering, colluders, checked) <= -(PRIVACY_BITS + 2)
    )
    return Neighbourhood(NEIGHBOURS, needed, checked)


def log2_too_many_colluders(cohort: int, colluders: int, needed: int) -> float:
    """Bound on: some device has drawn more than `needed - _HONEST_HELPERS` colluders."""
    most = needed - _HONEST_HELPERS
    return log2(cohort) + _log2_hypergeometric_tail(cohort - 1, colluders, NEIGHBOURS, most + 1)


def log2_void(cohort: int, gone: int, needed: int) -> float:
    """Bound on: some device has fewer than `needed` neighbours left after `gone` random devices have gone."""
    return log2(cohort) + _log2_hypergeometric_tail(cohort - 1, gone, NEIGHBOURS, NEIGHBOURS - needed + 1)


def log2_split(cohort: int, delivering: int, colluders: int) -> float:
    """Bound on: some list of `delivering` devices leaves the honest ones on it in two parts.

    The smaller part A has more than `_HONEST_HELPERS` members, B the others. Nobody in A has drawn anybody in
    B, nor the other way round; draws are independent. The sum runs over the size of A, times the number
    of choices of A, times at most 2^(cohort - size of A) choices of B.
    """
    honest = delivering - colluders
    terms = []
    for a in range(_HONEST_HELPERS + 1, honest // 2 + 1):
        b = honest - a
        none_in_b = _log2_choose(cohort - 1 - b, NEIGHBOURS) - _log2_choose(cohort - 1, NEIGHBOURS)
        none_in_a = _log2_choose(cohort - 1 - a, NEIGHBOURS) - _log2_choose(cohort - 1, NEIGHBOURS)
        terms.append(_log2_choose(cohort, a) + cohort - a + a * none_in_b + b * none_in_a)
    return _log2_sum(terms)


def log2_two_lists(cohort: int, delivering: int, colluders: int, checked: int) -> float:
    """Bound on: the server gets shares of both secrets of some device, under two lists.

    Two lists have valid signatures from at most cohort + colluders devices in all: colluders sign both, and
    an honest device signs one. A list needs `delivering` signatures. So a device that verifies `checked` of
    them, drawn at random, accepts a list with v valid ones with probability at most (v /
    delivering)^checked. For either secret, `_HONEST_HELPERS` honest neighbours have to accept, and they
    draw independently. The server divides the valid signatures between the lists as suits it best.
    """
    helpers = _log2_choose(NEIGHBOURS, _HONEST_HELPERS)

    def accepted(valid: int) -> float:
        return min(0.0, helpers + _HONEST_HELPERS * checked * log2(valid / delivering))

    together = cohort + colluders
    best = max(accepted(valid) + accepted(together - valid) for valid in range(1, together))
    return log2(cohort) + best


def _log2_choose(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2) if 0 <= k <= n else -inf


def _log2_sum(terms: list[float]) -> float:
    most = max(terms, default=-inf)
    return most if most == -inf else most + log2(sum(2 ** (term - most) for term in terms))


def _log2_hypergeometric_tail(population: int, marked: int, drawn: int, least: int) -> float:
    """Of `drawn` out of a population without replacement, at least `least` are marked."""
    return _log2_sum(
        [
            _log2_choose(marked, found)
            + _log2_choose(population - marked, drawn - found)
            - _log2_choose(population, drawn)
            for found in range(max(0, least), min(drawn, marked) + 1)
        ]
    )
