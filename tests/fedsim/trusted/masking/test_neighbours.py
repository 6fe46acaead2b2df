"""The bounds on bad luck in large cohorts, against simulation and against their promises."""

from math import log2

import numpy as np
import pytest

from fedsim.trusted.masking import Masked
from fedsim.trusted.masking import neighbours as bounds
from fedsim.trusted.masking.neighbours import LARGEST_COHORT, NEIGHBOURS, PRIVACY_BITS, neighbourhood
from fedsim.trusted.masking.packing import unpacked_seats
from tests.helpers.lying_server import LyingServer


@pytest.mark.parametrize("cohort", [3, 4, 10, NEIGHBOURS + 1])
def test_in_a_small_cohort_everybody_is_a_neighbour(cohort):
    needed = Masked().needed(cohort)
    shape = neighbourhood(cohort, needed)
    assert (shape.size, shape.needed, shape.checked) == (cohort - 1, needed - 1, needed)


@pytest.mark.parametrize("threshold", [0.6, 0.67, 0.9])
@pytest.mark.parametrize("cohort", [NEIGHBOURS + 2, 150, 200, 500, LARGEST_COHORT])
def test_a_large_cohort_keeps_the_promised_bound(cohort, threshold):
    needed = Masked(threshold=threshold).needed(cohort)
    shape, colluders = neighbourhood(cohort, needed), int(bounds.ASSUMED_COLLUDERS * cohort)
    logs = [
        bounds.log2_too_many_colluders(cohort, colluders, shape.needed),
        bounds.log2_split(cohort, needed, colluders),
    ]
    if shape.checked < needed:
        logs.append(bounds.log2_two_lists(cohort, needed, colluders, shape.checked))
    assert sum(2**bits for bits in logs) <= 2**-PRIVACY_BITS
    assert shape.needed <= shape.size == NEIGHBOURS


@pytest.mark.parametrize("cohort", [NEIGHBOURS + 2, 150, 200])
def test_a_third_may_go_in_cohorts_up_to_200(cohort):
    needed = Masked().needed(cohort)
    shape = neighbourhood(cohort, needed)
    assert bounds.log2_void(cohort, cohort - needed, shape.needed) < -20


def test_the_tail_is_that_of_draws_without_replacement():
    """400,000 draws of 80 out of 300, of which 100 are marked."""
    found = np.random.default_rng(0).hypergeometric(100, 200, 80, 400_000)
    for least in (25, 30, 33):
        expected = 2 ** bounds._log2_hypergeometric_tail(300, 100, 80, least)
        assert (found >= least).mean() == pytest.approx(expected, rel=0.05)


def test_more_neighbours_needed_means_fewer_colluders_and_more_void_rounds():
    colluding = [bounds.log2_too_many_colluders(500, 50, needed) for needed in range(20, 60)]
    void = [bounds.log2_void(500, 150, needed) for needed in range(20, 60)]
    assert colluding == sorted(colluding, reverse=True)
    assert void == sorted(void)


def test_verifying_more_signatures_leaves_less_to_luck():
    logs = [bounds.log2_two_lists(500, 335, 50, checked) for checked in (10, 20, 40)]
    assert logs == sorted(logs, reverse=True)
    # With so many colluders both lists can have enough valid signatures.
    assert bounds.log2_two_lists(500, 335, 200, 40) == log2(500)


def test_devices_draw_their_neighbours_at_random():
    server = LyingServer(90)
    server.keys(range(90))
    drawn = [unpacked_seats(server.share(seat)["neighbours"], 90) for seat in range(4)]
    for seat, neighbours in enumerate(drawn):
        assert len(neighbours) == NEIGHBOURS
        assert seat not in neighbours
    assert len({frozenset(neighbours) for neighbours in drawn}) == 4
