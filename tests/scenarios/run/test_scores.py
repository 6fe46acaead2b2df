"""What a score says of itself."""

import pytest

from scenarios.run.scores import BesideGrey, InversionScore


@pytest.mark.parametrize(
    ("disaggregated", "aggregate", "said"),
    [(14.5, 10.0, "4.5 dB nearer"), (10.0, 10.0, None), (9.0, 10.0, None), (None, 10.0, None)],
)
def test_inversion_is_told_only_if_it_came_nearer_than_the_sum(disaggregated, aggregate, said):
    psnr = BesideGrey(disaggregated=disaggregated, aggregate=aggregate, oracle=20.0, grey=8.0)
    sentence = InversionScore(kind="inversion", clients=1, resolved=1, psnr_db=psnr).in_words()
    assert said in sentence if said else sentence == ""
