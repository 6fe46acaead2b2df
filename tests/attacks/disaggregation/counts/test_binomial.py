"""The binomial distribution agrees with scipy's, also at its ends."""

import numpy as np
from scipy.stats import binom

from attacks.disaggregation.counts.binomial import log_binomial


def test_agrees_with_scipy():
    ones, trials = np.arange(9)[:, None, None], np.array([0, 1, 5, 8])[:, None]
    chance = np.array([0.0, 1e-9, 0.2, 0.7, 1.0])
    np.testing.assert_allclose(
        log_binomial(ones, trials, chance), binom.logpmf(ones, trials, chance), rtol=1e-12, atol=1e-12
    )
