"""Masked aggregation: right sums whoever drops out, nothing but noise from one device, no wrong sums."""

import numpy as np
import pytest
from scipy import stats

from fedsim.core.errors import UserError
from fedsim.trusted.failures import Failure
from fedsim.trusted.masking import Masked
from fedsim.trusted.masking.fixed_point import FixedPoint, OutOfRangeError
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World
from tests.helpers.fleet import Fleet
from tests.helpers.lying_server import drawn_updates

DIM = 20_000


def exact_sum(updates, clients):
    return np.sum([updates[k].astype(np.float64) for k in clients], axis=0)


def assert_sum_of(fleet, summed, clients, settings):
    """To half a quantisation step per update, and the rounding of the result to single precision."""
    expected = exact_sum(fleet.updates, clients)
    slack = settings.fixed_point.step / 2 * len(clients) + 1e-6 * np.abs(expected).max()
    np.testing.assert_allclose(summed.total, expected, rtol=0, atol=slack)
    assert summed.weight == sum(5 + k for k in clients)
    nodes = list(fleet.grid.get_node_ids())
    assert summed.members == tuple(nodes[k] for k in clients)


@pytest.mark.parametrize("clients", [3, 5, 8])
@pytest.mark.parametrize(
    "settings",
    [Masked(), Masked(bits=8, largest_entry=0.2), Masked(bits=48, modulus_bits=64)],
    ids=["24 of 32 bits", "8 of 32 bits", "48 of 64 bits"],
)
def test_the_masked_sum_is_the_ideal_one(clients, settings):
    fleet = Fleet(drawn_updates(clients, DIM), settings)
    summed, _ = fleet.sum()
    assert_sum_of(fleet, summed, range(clients), settings)


def test_the_sum_does_not_depend_on_the_keys():
    fleet = Fleet(drawn_updates(4, DIM), Masked())
    (first, sent), (second, sent_again) = fleet.sum(1), fleet.sum(2)
    assert first.total.tobytes() == second.total.tobytes()
    assert (masked_vector(sent[0]) != masked_vector(sent_again[0])).mean() > 0.99


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize(("clients", "gone"), [(10, [0]), (10, [9]), (10, [1, 4]), (10, [0, 3, 8])], ids=str)
def test_up_to_a_third_may_drop_out(failure, clients, gone):
    """Absent before the keys, or gone after the masks were agreed, with or without an update in hand."""
    settings = Masked()
    fleet = Fleet(drawn_updates(clients, 500), settings, plan={(k, 0): failure for k in gone})
    summed, _ = fleet.sum()
    assert_sum_of(fleet, summed, [k for k in range(clients) if k not in gone], settings)


@pytest.mark.parametrize("clients", [31, 81, 82, pytest.param(200, marks=pytest.mark.slow)])
def test_a_third_of_a_large_cohort_may_drop_out_in_all_ways_at_once(clients):
    """Below 82 everybody is everybody's neighbour, above that devices draw their neighbours."""
    settings = Masked()
    rng = np.random.default_rng(clients)
    gone = rng.permutation(clients)[: clients - settings.needed(clients)].tolist()
    kinds = list(Failure)
    plan = {(k, 0): kinds[place % len(kinds)] for place, k in enumerate(gone)}
    fleet = Fleet(drawn_updates(clients, 50), settings, plan=plan)
    summed, _ = fleet.sum()
    assert_sum_of(fleet, summed, [k for k in range(clients) if k not in gone], settings)
    assert len(gone) >= 0.32 * clients


@pytest.mark.parametrize("failure", list(Failure))
def test_below_the_threshold_the_round_is_void_and_the_next_one_is_not(failure):
    settings = Masked(threshold=0.7)
    fleet = Fleet(drawn_updates(6, 500), settings, plan={(k, 0): failure for k in (1, 2)})
    void, _ = fleet.sum(1)
    assert void.members == ()
    assert np.isnan(void.weight)
    assert not void.total.any()
    summed, _ = fleet.sum(2)
    assert_sum_of(fleet, summed, range(6), settings)


def test_a_device_that_vanishes_before_the_confirmation_is_still_in_the_sum():
    settings = Masked()
    fleet = Fleet(drawn_updates(5, 500), settings)
    summing = fleet.summation.open_round(fleet.invitation())
    replies = fleet.grid.send_and_receive(summing.messages)
    fleet.plan.update({(3, 0): Failure.ABSENT})
    assert_sum_of(fleet, summing.close(replies), range(5), settings)


class Vanishing:
    """Makes devices absent once the server sends a certain query."""

    def __init__(self, fleet, query, gone):
        self.fleet, self.query, self.gone, self.send = fleet, query, gone, fleet.grid.send_and_receive

    def send_and_receive(self, messages):
        messages = list(messages)
        if messages and messages[0].metadata.message_type == f"query.masking_{self.query}":
            self.fleet.plan.update({(k, 0): Failure.ABSENT for k in self.gone})
        return self.send(messages)


@pytest.mark.parametrize("query", ["shares", "confirm", "unmask"])
@pytest.mark.parametrize("gone", [[3], [0, 1]], ids=str)
def test_devices_may_vanish_before_any_query(query, gone, monkeypatch):
    """One of five may go, and is in the sum if it has delivered before; with two gone the round is void."""
    settings = Masked()
    fleet = Fleet(drawn_updates(5, 500), settings)
    monkeypatch.setattr(fleet.grid, "send_and_receive", Vanishing(fleet, query, gone).send_and_receive)
    summed, _ = fleet.sum()
    if len(gone) > 1:
        assert np.isnan(summed.weight)
        assert summed.members == ()
    else:
        there = [0, 1, 2, 4] if query == "shares" else range(5)
        assert_sum_of(fleet, summed, there, settings)


def masked_vector(reply):
    return reply.content["arrays"]["masked"].numpy()


def test_what_one_device_sends_is_noise():
    updates = drawn_updates(3, DIM)
    fleet = Fleet(updates, Masked())
    _, replies = fleet.sum()
    for client, reply in enumerate(replies):
        assert set(reply.content) == {"arrays"}
        vector = masked_vector(reply)[:-1]
        assert vector.dtype == np.uint32
        uniform = vector / 2.0**32
        plain = updates[client]
        # Five standard errors of a correlation of independent vectors.
        assert abs(np.corrcoef(uniform, plain)[0, 1]) < 5 / np.sqrt(DIM)
        assert abs(stats.spearmanr(uniform, np.abs(plain)).statistic) < 5 / np.sqrt(DIM)
        assert stats.kstest(uniform, "uniform").pvalue > 1e-5
        bits = np.unpackbits(vector.view(np.uint8).reshape(-1, 4), axis=1).mean(axis=0)
        assert np.abs(bits - 0.5).max() < 5 * 0.5 / np.sqrt(DIM)


def test_without_masks_the_same_measures_find_the_update():
    plain = drawn_updates(1, DIM)[0]
    uniform = Masked().fixed_point.encode(plain, 1)[:-1] / 2.0**32
    assert abs(np.corrcoef(uniform, plain)[0, 1]) > 0.5
    assert stats.kstest(uniform, "uniform").pvalue < 1e-5


@pytest.mark.parametrize("entry", [1.01, -7.0, np.nan, np.inf])
def test_an_entry_out_of_range_is_an_error_and_not_a_wrong_sum(entry):
    updates = drawn_updates(3, 50)
    updates[1][7] = entry
    with pytest.raises(UserError, match=r"client 1, round 0: an entry of .* outside ±largest_entry"):
        Fleet(updates, Masked()).sum()


def test_a_sum_that_could_wrap_around_is_refused():
    point = FixedPoint(1.0, bits=31, modulus_bits=32)
    assert point.most_summands == 2
    with pytest.raises(UserError, match="modulus_bits is 32: sums of 3 updates with 31 bits can overflow"):
        Fleet(drawn_updates(3, 50), Masked(bits=31)).sum()


def test_a_scenario_whose_sums_could_wrap_around_is_refused_before_anything_is_written(scenario_file):
    overrides = ['federation.aggregation={ name = "masked", bits = 31 }', "federation.participation.rate=1"]
    with pytest.raises(UserError, match="modulus_bits"):
        World.prepare(load_scenario(scenario_file, overrides))


@pytest.mark.parametrize("largest_entry", [0.1, 0.2, 0.3, 0.7, 1.0, 3.3])
@pytest.mark.parametrize(("bits", "modulus_bits"), [(24, 32), (25, 32), (31, 32), (40, 64), (53, 64)])
def test_no_sum_wraps_around_wherever_the_limit_is_rounded_to(largest_entry, bits, modulus_bits):
    """In single precision the limit itself can lie above the limit: 0.1 becomes 0.100000001."""
    point = FixedPoint(largest_entry, bits, modulus_bits)
    n = min(point.most_summands, 1000)
    update = np.array([largest_entry, -largest_entry], dtype=np.float32)
    words = point.encode(update, 3)
    total, weight = point.decode(words * words.dtype.type(n))
    np.testing.assert_allclose(total, n * update, rtol=1e-6)
    assert weight == 3 * n


@pytest.mark.parametrize(("bits", "modulus_bits"), [(8, 32), (24, 32), (48, 64)])
def test_rounding_is_to_the_nearest_step_and_to_the_even_one_of_two(bits, modulus_bits):
    point = FixedPoint(0.5, bits, modulus_bits)
    update = np.random.default_rng(0).uniform(-0.5, 0.5, 10_000).astype(np.float32)
    update[:3] = np.array([0.5, 1.5, -2.5]) * point.step
    steps = np.rint(update.astype(np.float64) / point.step).astype(np.int64)
    np.testing.assert_array_equal(point.encode(update, 7)[:-1], steps.astype(f"uint{modulus_bits}"))


@pytest.mark.parametrize("bits", [4, 8, 24, 31])
def test_the_extremes_of_the_range_survive_the_largest_sum(bits):
    point = FixedPoint(0.5, bits, 32)
    n = min(point.most_summands, 1000)
    update = np.array([0.5, -0.5, 0.0], dtype=np.float32)
    words = point.encode(update, 3)
    update_sum, weight = point.decode(words * np.uint32(n))
    np.testing.assert_allclose(update_sum, n * update, rtol=1e-6)
    assert weight == 3 * n
    with pytest.raises(OutOfRangeError, match="weight"):
        point.encode(update, 2**31)


def test_more_devices_than_the_bounds_hold_for_are_refused():
    with pytest.raises(UserError, match="cohorts of 1001 devices, expected at most 1000"):
        Masked(bits=20).check_cohort(1001)
    Masked(bits=20).check_cohort(1000)
