"""Whitening: it undoes the scales of a layer, also where they change over the rounds."""

import numpy as np
import pytest

from attacks.disaggregation.space.whitening import DISTINCT_ENTRIES, KNOT_REACH, Knots, whitened_gram


def test_whitening_undoes_the_scales_of_a_layers_rows_and_columns():
    rng = np.random.default_rng(4)
    plain = rng.standard_normal((40, 12, 20))
    scaled = rng.uniform(0.7, 1.4, (12, 1)) * plain * rng.uniform(0.7, 1.4, 20)
    sizes = np.full(40, 5.0)
    expected, found = (whitened_gram(x.reshape(40, -1), sizes, [(12, 20)]) for x in (plain, scaled))
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_whitening_takes_out_the_common_mean():
    rng = np.random.default_rng(5)
    P = (rng.random((30, 6)) < 0.4).astype(float)
    sizes, G = P.sum(axis=1), rng.standard_normal((6, 50))
    apart, together = (whitened_gram(P @ (G + shift), sizes, [(50,)]) for shift in (0, 100 * rng.random(50)))
    np.testing.assert_allclose(together, apart, atol=1e-2)


def test_an_update_stays_like_itself_while_the_covariance_moves():
    rng = np.random.default_rng(7)
    rounds, rows, columns, apart = 120, 12, 20, 90
    updates = np.tile(rng.standard_normal((apart, rows, columns)), (2, 1, 1))[:rounds]
    time = np.linspace(0, 1, rounds)[:, None, None]
    first, last = np.exp(rng.uniform(-2, 2, (2, 1, rows, 1)))
    turned = (updates * first ** (1 - time) * last**time).reshape(rounds, -1)
    fixed, moving = (whitened_gram(turned, None, [(rows, columns)], moving=m) for m in (False, True))
    assert alike(fixed, apart) < 0.75
    assert alike(moving, apart) > 0.95


def alike(gram, apart):
    """Mean correlation of rounds that are so far `apart`."""
    length = np.sqrt(np.diag(gram))
    return (gram / np.outer(length, length)).diagonal(apart).mean()


@pytest.mark.parametrize(("rounds", "spacing"), [(120, 8), (121, 9.7), (40, 8)])
def test_knots_share_out_every_round(rounds, spacing):
    knots = Knots.spaced(rounds, spacing)
    assert knots.share.shape == knots.weight.shape
    np.testing.assert_allclose(knots.share.sum(axis=1), 1, atol=1e-6)
    assert (knots.weight[knots.share > 0] > 0).all()
    # About as many rounds count for a knot in the middle as the choice of the spacing assumes.
    middle = knots.weight[:, knots.weight.shape[1] // 2].sum()
    assert middle == pytest.approx(KNOT_REACH * spacing, rel=0.25)


def test_too_few_rounds_have_one_covariance():
    assert Knots.spaced(31, 8).share.shape == (31, 1)


def test_large_layers_count_in_proportion_to_the_root_of_their_entries():
    rng = np.random.default_rng(8)
    small, large = (
        rng.standard_normal((64, entries)) for entries in (DISTINCT_ENTRIES, 9 * DISTINCT_ENTRIES)
    )
    energies = [
        np.trace(whitened_gram(layer, None, [(layer.shape[1],)], moving=True)) for layer in (small, large)
    ]
    assert energies[1] == pytest.approx(3 * energies[0], rel=1e-3)
    both = whitened_gram(
        np.hstack((small, large)), None, [(DISTINCT_ENTRIES,), (9 * DISTINCT_ENTRIES,)], moving=True
    )
    assert np.trace(both) == pytest.approx(sum(energies), rel=1e-3)
