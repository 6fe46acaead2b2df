"""Changes of the likelihood, against the likelihood of the changed matrix."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation.noise.round_model import RoundModel, Scales
from scenarios.run.ceiling.column_changes import ColumnChanges

ROUNDS, CLIENTS = 18, 5


def model(drift):
    rng = np.random.default_rng(4)
    P = (rng.random((ROUNDS, CLIENTS)) < 0.4).astype(np.float64)
    sums = P @ rng.standard_normal((CLIENTS, 60)) + rng.standard_normal((ROUNDS, 60))
    return RoundModel(
        gram=sums @ sums.T / 60,
        design=np.column_stack((P, P.sum(axis=1))),
        variance=np.zeros((ROUNDS, CLIENTS)),
        scales=Scales(client=0.8, mean=0.1, drift=drift, course=(-0.2, 0.3)),
        relative_energy=rng.uniform(0.5, 2, CLIENTS),
        noise=rng.uniform(0.5, 2, ROUNDS),
        shared=rng.standard_normal((ROUNDS, 2)),
        level=np.ones(ROUNDS),
    )


def misfit_with(model, client, *rounds):
    """The misfit if the client's entries in these rounds were the opposite; cohort sizes stay."""
    design = model.design.copy()
    design[list(rounds), client] = 1 - design[list(rounds), client]
    return replace(model, design=design).misfit()


@pytest.mark.parametrize("drift", [0.0, 1.5])
def test_flips_change_the_misfit_as_computed_anew(drift):
    before = model(drift)
    rounds = np.arange(ROUNDS)
    for client in range(CLIENTS):
        expected = [misfit_with(before, client, r) - before.misfit() for r in rounds]
        np.testing.assert_allclose(ColumnChanges(before).flips(client, rounds), expected, atol=1e-9)


@pytest.mark.parametrize("drift", [0.0, 1.5])
def test_moves_change_the_misfit_as_computed_anew(drift):
    before = model(drift)
    for client in range(CLIENTS):
        rounds = np.arange(1, ROUNDS, 2)
        p = before.design[rounds, client] == 1
        left, joined = np.nonzero(p[:, None] & ~p)
        assert len(left)
        pairs = zip(rounds[left], rounds[joined], strict=True)
        expected = [misfit_with(before, client, r, q) - before.misfit() for r, q in pairs]
        found = ColumnChanges(before).moves(client, rounds, left, joined)
        np.testing.assert_allclose(found, expected, atol=1e-9)
