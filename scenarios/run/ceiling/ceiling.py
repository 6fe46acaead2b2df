"""The ceiling of an attack: the best of what the genie, the attack itself and the guess find.

The genie does without cohort sizes, and an attack may use them. So an attack can beat the genie on small
problems. It then is itself the proof of what the evidence gives.

The genie's model is fitted to the matrix that it is told. With few rounds such a fit alone could make it find
that matrix. So it is also told a wrong matrix with the same counts. If it finds more of that one than a guess
does, there is no ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.instance import Instance
from scenarios.run.ceiling.genie import Decisions, flops, genie, shuffled
from scenarios.run.ceiling.uniqueness import unique_fraction
from scenarios.run.sections import Ceiling

MOST_FLOPS = 1e12
"""Work up to which a ceiling is computed: about four minutes of a core."""
LEAST_RATE = 1e-3
"""Least distance of the mean participation rate from 0 and 1, as prior of an entry."""

MOST_OF_A_WRONG_MATRIX = 0.1
"""Share of the ones of a wrong matrix, beyond the guess, from which the genie is not believed."""

GENIE = "a genie that is told all other participations"
ATTACK = "the attack: it found everything"
TOO_LARGE = "none: it would take too long"
TOO_FEW_ROUNDS = "none: rounds are too few to fit a model of the sums"
NO_EVIDENCE = "none: nobody took part, or all sums are zero"


@dataclass(frozen=True)
class Achieved:
    """What a guess or an attack finds, as `Disaggregation` defines it."""

    ones_found: float
    ones_precision: float
    exact_fraction: float
    singled_out_fraction: float = 0.0


def score_ceiling(
    problem: DisaggregationProblem,
    P: NDArray[np.uint8],
    *,
    exact: NDArray[np.bool_],
    proved: NDArray[np.bool_],
    alone: NDArray[np.bool_],
    attack: Achieved,
    guess: Achieved,
) -> Ceiling:
    """The ceiling for the true P (rounds, K) of the problem's clients.

    Of each client (K,): whether the attack has its column `exact`, whether it is also `proved`, and whether
    nobody else has the same column (`alone`). The ceiling is at least what `attack` and `guess` achieve.
    """
    if exact.all():
        best = Achieved(1.0, 1.0, 1.0, float(alone.mean()))
        return _ceiling(ATTACK, [best], 1.0 if proved.all() else None)
    if flops(problem.rounds, problem.dim, int(P.sum(dtype=np.int64))) > MOST_FLOPS:
        return _none(TOO_LARGE)
    instance = Instance.prepare(problem, rng=np.random.default_rng(0))
    if instance.subspace.rank == 0 or not P.any():
        return _none(NO_EVIDENCE)
    rate = float(np.clip(P.mean(), LEAST_RATE, 1 - LEAST_RATE))
    wrong = shuffled(problem.windows, P, np.random.default_rng(0))
    exact_sums = instance.subspace.exact
    told, misled = (
        _achieved(genie(problem, matrix, rate, exact=exact_sums), matrix, alone) for matrix in (P, wrong)
    )
    if told is None or misled is None or misled.ones_found > guess.ones_found + MOST_OF_A_WRONG_MATRIX:
        return _none(TOO_FEW_ROUNDS)
    return _ceiling(GENIE, [told, attack, guess], unique_fraction(instance, P, proved & exact))


def _achieved(decisions: Decisions | None, P: NDArray[np.uint8], alone: NDArray[np.bool_]) -> Achieved | None:
    """What the genie finds of the matrix P (rounds, K) that it was told."""
    if decisions is None:
        return None
    found, invented = int(decisions.found.sum()), int(decisions.invented.sum())
    right = (decisions.found == (P == 1)).all(axis=0) & (decisions.invented == 0)
    return Achieved(
        ones_found=found / int(P.sum(dtype=np.int64)),
        ones_precision=found / max(1, found + invented),
        exact_fraction=float(right.mean()),
        singled_out_fraction=float((right & alone).mean()),
    )


def _ceiling(basis: str, achieved: Sequence[Achieved], unique: float | None) -> Ceiling:
    most = max(achieved, key=lambda a: (a.ones_found, a.ones_precision))
    return Ceiling(
        ones_found=most.ones_found,
        ones_precision=most.ones_precision,
        exact_fraction=max(unique or 0.0, *(a.exact_fraction for a in achieved)),
        singled_out_fraction=max(a.singled_out_fraction for a in achieved),
        unique_fraction=unique,
        basis=basis,
    )


def _none(reason: str) -> Ceiling:
    return Ceiling(
        ones_found=None, ones_precision=None, exact_fraction=None, singled_out_fraction=None, basis=reason
    )
