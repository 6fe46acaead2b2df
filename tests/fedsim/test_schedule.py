import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.schedule import Bernoulli, Cohort


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
