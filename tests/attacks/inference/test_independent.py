"""The separation of independent sources."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import FastICA

from attacks.inference.inversion.independent import independent_components


@pytest.mark.parametrize(("sources", "iterations"), [(2, 200), (12, 200), (12, 3)])
def test_it_takes_the_steps_of_scikit_learn(sources, iterations):
    rng = np.random.default_rng(sources)
    mixtures = rng.normal(size=(sources, sources)) @ rng.laplace(size=(sources, 900)) + 3
    found, steps = independent_components(mixtures, iterations=iterations, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = FastICA(whiten="unit-variance", max_iter=iterations, random_state=5).fit(mixtures.T)
    np.testing.assert_allclose(found, theirs.components_, rtol=1e-9)
    assert steps == theirs.n_iter_


def test_it_separates_planted_sources():
    rng = np.random.default_rng(1)
    sources = rng.laplace(size=(4, 5000))
    mixing = rng.normal(size=(4, 4))
    found, _ = independent_components(mixing @ sources, iterations=200, seed=0)
    likeness = np.abs(found @ mixing) * sources.std(axis=1)
    assert sorted(likeness.argmax(axis=1)) == [0, 1, 2, 3]
    assert likeness.max(axis=1).min() > 0.99
