"""The sums are likelier under the true columns than under others, whoever has them."""

import numpy as np

from attacks.disaggregation.noise.known_participation import fits
from tests.helpers.drifting import drifting


def test_true_columns_explain_drifting_sums_best():
    problem, P = drifting(3, drift=2.0, noise_sd=0.4, clients=12, rounds=48, dim=800)
    rng = np.random.default_rng(0)
    others_names = P[:, rng.permutation(P.shape[1])]
    shuffled = rng.permutation(P, axis=0)
    missing = P.copy()
    missing[:, :4] = 0
    truth, renamed, wrong, fewer = (
        model.misfit() for model in fits(problem, [P, others_names, shuffled, missing])
    )
    np.testing.assert_allclose(truth, renamed, rtol=1e-6)
    assert truth < fewer < wrong
