"""The model of the aggregates: its fits really lower the misfit."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.disaggregation.noise.round_model import RoundModel, Scales


def model_of(truth, *, start, seed=3, rounds=40, clients=8, dim=2000, traits=0):
    """A model with scales `start` of aggregates whose true scales are `truth`, with noise of .5."""
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < 0.3).astype(float)
    Z = rng.standard_normal((rounds, traits))
    given = RoundModel(
        np.eye(rounds),
        np.concatenate((P, P.sum(axis=1, keepdims=True), Z), axis=1),
        np.zeros((rounds, clients)),
        truth,
        np.ones(clients),
        np.full(rounds, 0.5),
        np.zeros((rounds, 0)),
        np.ones(rounds),
    )
    A = np.linalg.cholesky(given.covariance()) @ rng.standard_normal((rounds, dim))
    return replace(given, gram=A @ A.T / dim, scales=start, noise=np.full(rounds, 1.0))


def test_refinement_finds_the_true_scales():
    truth = Scales(client=0.3, mean=0.02, drift=2.0, course=(-0.4, 0.4))
    model = model_of(truth, start=Scales(client=0.5, mean=0.05, drift=1.0))
    for _ in range(4):
        model = model.refined(steps=10)
    loudness = np.exp(2 * np.log(model.level).mean())
    assert model.scales.client * loudness == pytest.approx(truth.client, rel=0.1)
    assert model.noise.mean() * loudness == pytest.approx(0.5, rel=0.1)
    found, true = (scales.position(40) for scales in (model.scales, truth))
    assert np.abs(found - true).max() < 0.3


def test_refinement_finds_what_traits_of_the_data_contribute():
    truth = Scales(client=0.3, mean=0.02, drift=1.0, traits=0.1)
    model = model_of(truth, start=Scales(client=0.3, mean=0.02, drift=1.0, traits=0.02), traits=3)
    for _ in range(4):
        model = model.refined(steps=10)
    loudness = np.exp(2 * np.log(model.level).mean())
    assert model.scales.traits * loudness == pytest.approx(truth.traits, rel=0.25)
    # A known participation leaves the traits alone.
    np.testing.assert_array_equal(model.given(model.participation, None).design, model.design)


@pytest.mark.parametrize("drift", [0.5, 2.0])
def test_the_gradient_is_that_of_the_misfit(drift):
    scales = Scales(client=0.4, mean=0.05, drift=drift, course=(0.0, 0.5, -0.5), traits=0.2)
    model = model_of(replace(scales, client=0.3), start=scales, traits=2)
    changes = (
        {"client": 0.4 * np.exp(1e-5)},
        {"mean": 0.05 * np.exp(1e-5)},
        {"traits": 0.2 * np.exp(1e-5)},
    )
    by_hand = [
        (replace(model, scales=replace(scales, **change)).misfit() - model.misfit()) / 1e-5
        for change in changes
    ]
    np.testing.assert_allclose(model._gradient()[:3], by_hand, rtol=1e-3)


def test_a_fixed_model_stays_fixed():
    truth = Scales(client=0.3, mean=0.02)
    model = model_of(truth, start=Scales(client=0.5, mean=0.05)).refined(steps=10)
    assert (model.scales.drift, model.scales.course) == (0, (0, 0))
    loudness = np.exp(2 * np.log(model.level).mean())
    assert model.scales.client * loudness == pytest.approx(truth.client, rel=0.1)


def test_refinement_follows_updates_that_rest_turn_and_rest_again():
    """A speed that only rises or falls would miss the turn in the middle."""
    truth = Scales(client=0.6, mean=0.02, drift=3.0, course=(-3.0, -3.0, 1.5, -3.0, -3.0))
    model = model_of(truth, start=Scales(client=0.5, mean=0.05, drift=1.0), rounds=80)
    tilted = model
    for _ in range(8):
        model, tilted = model.refined(steps=10), tilted.fitted()
    found, true = (scales.position(80) for scales in (model.scales, truth))
    assert np.abs(found - true).max() < 0.25 * true[-1]
    assert model.misfit() < tilted.misfit() - 0.1


def test_refinement_finds_rounds_in_which_updates_are_louder():
    model = model_of(Scales(client=0.3, mean=0.02), start=Scales(client=0.3, mean=0.02, drift=0.5))
    loud = np.linspace(1, 3, 40)
    louder = replace(model, gram=model.gram * np.outer(loud, loud), noise=0.5 * loud**2)
    found = louder.refined(steps=30)
    np.testing.assert_allclose(found.level / found.level[0], loud / loud[0], rtol=0.25)
    assert found.misfit() < louder.misfit()


def test_dividing_rounds_by_a_level_leaves_the_likelihood():
    model = model_of(Scales(client=0.3, mean=0.02, drift=1.0), start=Scales(client=0.3, mean=0.02, drift=1.0))
    level = np.linspace(0.5, 2, 40)
    quiet = replace(model, gram=np.outer(level, level) * model.gram, shared=np.zeros((40, 0)))
    assert quiet.levelled(level).gram == pytest.approx(model.gram)
    assert quiet.levelled(level).misfit() == pytest.approx(
        replace(model, noise=quiet.noise / level**2).misfit() + 2 * np.log(level).sum()
    )
