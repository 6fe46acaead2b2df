"""The model of the aggregates: its fits really lower the misfit."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation.noise.round_model import RoundModel, Scales


def model_of(truth, *, start, seed=3, rounds=40, clients=8, dim=2000):
    """A model with scales `start` of aggregates whose true scales are `truth`, with noise of .5."""
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < 0.3).astype(float)
    given = RoundModel(
        np.eye(rounds),
        np.concatenate((P, P.sum(axis=1, keepdims=True)), axis=1),
        np.zeros((rounds, clients)),
        truth,
        np.ones(clients),
        np.full(rounds, 0.5),
        np.zeros((rounds, 0)),
    )
    A = np.linalg.cholesky(given.covariance()) @ rng.standard_normal((rounds, dim))
    return replace(given, gram=A @ A.T / dim, scales=start, noise=np.full(rounds, 1.0))


def test_refinement_finds_the_true_scales():
    truth = Scales(client=0.3, mean=0.02, drift=2.0, bend=0.8)
    model = model_of(truth, start=Scales(client=0.5, mean=0.05, drift=1.0))
    for _ in range(4):
        model = model.refined(steps=10)
    assert model.scales.client == pytest.approx(truth.client, rel=0.1)
    assert model.scales.drift == pytest.approx(truth.drift, rel=0.2)
    assert model.scales.bend == pytest.approx(truth.bend, abs=0.4)
    assert model.noise.mean() == pytest.approx(0.5, rel=0.1)


def test_a_fixed_model_stays_fixed():
    truth = Scales(client=0.3, mean=0.02)
    model = model_of(truth, start=Scales(client=0.5, mean=0.05)).refined(steps=10)
    assert (model.scales.drift, model.scales.bend) == (0, 0)
    assert model.scales.client == pytest.approx(truth.client, rel=0.1)
