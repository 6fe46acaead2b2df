import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.trusted.schedule import Batches, Bernoulli, Cohort


def test_bernoulli_rate():
    invited = Bernoulli(rate=0.2).draw(500, 100, np.random.default_rng(0))
    assert invited.shape == (500, 100)
    assert abs(invited.mean() - 0.2) < 0.01
    assert invited.sum(axis=1).std() > 1


def test_cohort_has_a_fixed_size_and_everybody_gets_a_turn():
    invited = Cohort(size=5).draw(400, 20, np.random.default_rng(0))
    assert (invited.sum(axis=1) == 5).all()
    assert (abs(invited.mean(axis=0) - 0.25) < 0.1).all()


def test_cohort_larger_than_the_federation():
    with pytest.raises(UserError, match=r"participation\.size is 21.*20 clients"):
        Cohort(size=21).draw(1, 20, np.random.default_rng(0))


def test_batches_take_part_together_or_not_at_all():
    """23 clients in batches of 5: four batches, three of which have one more."""
    invited = Batches(batch_size=5, per_round=2).draw(60, 23, np.random.default_rng(0))
    columns, size = np.unique(invited, axis=1, return_counts=True)
    assert sorted(size.tolist()) == [5, 6, 6, 6]
    assert (columns.sum(axis=1) == 2).all()


def test_batches_get_their_turn():
    invited = Batches(batch_size=4, per_round=1).draw(50, 20, np.random.default_rng(0))
    assert set(invited.sum(axis=0).tolist()) == {10}
    assert not np.array_equal(invited[:5], invited[5:10]), "the order is drawn anew"


def test_more_batches_than_there_are():
    with pytest.raises(
        UserError, match=r"per_round is 3: expected at most the 2 batches of 4 that 11 clients"
    ):
        Batches(batch_size=4, per_round=3).draw(1, 11, np.random.default_rng(0))
