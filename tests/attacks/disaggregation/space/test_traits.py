"""Traits of the data, read from the small vectors of a network."""

import numpy as np
import pytest

from attacks.disaggregation.space.traits import ROUNDS_PER_TRAIT, trait_profiles

SHAPES = [(420, 40), (60,), (4, 60), (4,)]
ROUNDS = 80


def sums(rng, *, labels):
    """Sums in which the last vector follows the `labels` (rounds, 4) of the participants, and all else is
    noise."""
    entries = [rng.standard_normal((ROUNDS, int(np.prod(shape)))) for shape in SHAPES]
    entries[-1] = 3 * labels + 0.1 * entries[-1]
    return np.hstack(entries).astype(np.float32)


def explained(profiles, targets):
    """Share of the targets' energy that lies in the space of the profiles."""
    basis, _ = np.linalg.qr(profiles)
    return np.linalg.norm(basis.T @ targets) ** 2 / np.linalg.norm(targets) ** 2


def test_shares_of_labels_are_found():
    rng = np.random.default_rng(1)
    labels = rng.standard_normal((ROUNDS, 4))
    profiles = trait_profiles(sums(rng, labels=labels), None, SHAPES)
    assert profiles.shape == (ROUNDS, ROUNDS // ROUNDS_PER_TRAIT)
    assert np.mean(profiles**2) == pytest.approx(1)
    assert explained(profiles, labels) > 0.95
    # As many profiles at random explain a tenth.
    assert explained(rng.standard_normal(profiles.shape), labels) < 0.3


def test_vectors_that_are_much_of_an_update_tell_too_much():
    rng = np.random.default_rng(2)
    A = sums(rng, labels=rng.standard_normal((ROUNDS, 4)))
    without_first = A[:, 420 * 40 :]
    assert trait_profiles(without_first, None, SHAPES[1:]).shape == (ROUNDS, 0)


def test_without_vectors_there_are_no_traits():
    A = np.ones((ROUNDS, 2400), np.float32)
    assert trait_profiles(A, None, [(60, 40)]).shape == (ROUNDS, 0)


def test_vectors_that_never_change_have_no_traits():
    A = np.random.default_rng(3).standard_normal((ROUNDS, 2404)).astype(np.float32)
    A[:, -4:] = 0
    assert trait_profiles(A, None, [(60, 40), (4,)]).shape == (ROUNDS, 0)
