"""Masked aggregation: right sums whoever drops out, nothing but noise from one device, no wrong sums."""

import numpy as np
import pytest
from cryptography.fernet import InvalidToken
from flwr.app import ConfigRecord, Message, RecordDict
from scipy import stats

from fedsim.core.errors import UserError
from fedsim.trusted.failures import Failure
from fedsim.trusted.masking import Masked
from fedsim.trusted.masking.device_side import ProtocolError
from fedsim.trusted.masking.fixed_point import FixedPoint, OutOfRangeError
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World
from tests.helpers.fleet import Fleet

DIM = 20_000


def drawn_updates(clients, dim=DIM):
    rng = np.random.default_rng(5)
    return [rng.normal(scale=0.02, size=dim).astype(np.float32) for _ in range(clients)]


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


@pytest.mark.parametrize("clients", [1, 2, 5])
@pytest.mark.parametrize(
    "settings",
    [Masked(), Masked(bits=8, largest_entry=0.2), Masked(bits=48, modulus_bits=64)],
    ids=["24 of 32 bits", "8 of 32 bits", "48 of 64 bits"],
)
def test_the_masked_sum_is_the_ideal_one(clients, settings):
    fleet = Fleet(drawn_updates(clients), settings)
    summed, _ = fleet.sum()
    assert_sum_of(fleet, summed, range(clients), settings)


def test_the_sum_does_not_depend_on_the_keys():
    fleet = Fleet(drawn_updates(4), Masked())
    (first, sent), (second, sent_again) = fleet.sum(1), fleet.sum(2)
    assert first.total.tobytes() == second.total.tobytes()
    assert (masked_vector(sent[0]) != masked_vector(sent_again[0])).mean() > 0.99


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize("gone", [[0], [5], [1, 4], [0, 3, 8]], ids=str)
def test_up_to_a_third_may_drop_out(failure, gone):
    """Absent before the keys, or gone after the masks were agreed, with or without an update in hand."""
    settings = Masked()
    fleet = Fleet(drawn_updates(9, 500), settings, plan={(k, 0): failure for k in gone})
    summed, _ = fleet.sum()
    assert_sum_of(fleet, summed, [k for k in range(9) if k not in gone], settings)


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


def test_who_vanishes_before_the_unmasking_is_still_in_the_sum():
    settings = Masked()
    fleet = Fleet(drawn_updates(5, 500), settings)
    summing = fleet.summation.open_round(fleet.invitation())
    replies = fleet.grid.send_and_receive(summing.messages)
    fleet.plan.update({(3, 0): Failure.ABSENT})
    assert_sum_of(fleet, summing.close(replies), range(5), settings)


def test_too_few_left_for_the_unmasking_is_a_void_round():
    settings = Masked()
    fleet = Fleet(drawn_updates(5, 500), settings)
    summing = fleet.summation.open_round(fleet.invitation())
    replies = fleet.grid.send_and_receive(summing.messages)
    fleet.plan.update({(k, 0): Failure.ABSENT for k in (0, 1, 2)})
    assert np.isnan(summing.close(replies).weight)


def masked_vector(reply):
    return reply.content["arrays"]["masked"].numpy()


def test_what_one_device_sends_is_noise():
    updates = drawn_updates(3)
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
    plain = drawn_updates(1)[0]
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


def ask(fleet, client, query, order, server_round=1):
    config = ConfigRecord({"server-round": server_round})
    content = RecordDict({"config": config, "masking": ConfigRecord(order)})
    node = list(fleet.grid.get_node_ids())[client]
    (reply,) = fleet.grid.send_and_receive([Message(content, node, f"query.masking_{query}")])
    return reply.content["masking"]


@pytest.fixture
def trained():
    """Four devices that have sent their masked vectors, before any unmasking."""
    fleet = Fleet(drawn_updates(4, 50), Masked())
    summing = fleet.summation.open_round(fleet.invitation())
    fleet.grid.send_and_receive(summing.messages)
    return fleet


@pytest.mark.parametrize(
    ("delivered", "dropped", "why"),
    [
        ([0], [1, 2, 3], "below the threshold"),
        ([0, 1, 2, 3], [1], "either delivered or dropped out"),
        ([0, 1, 2], [], "either delivered or dropped out"),
    ],
)
def test_a_device_does_not_help_to_unmask_a_single_update(trained, delivered, dropped, why):
    with pytest.raises(ProtocolError, match=why):
        ask(trained, 0, "unmask", {"delivered": delivered, "dropped": dropped})


def test_a_device_helps_once_and_for_its_own_round(trained):
    with pytest.raises(ProtocolError, match="no keys for round 2"):
        ask(trained, 0, "unmask", {"delivered": [0, 1, 2, 3], "dropped": []}, server_round=2)
    ask(trained, 0, "unmask", {"delivered": [0, 1, 2, 3], "dropped": []})
    with pytest.raises(ProtocolError, match="no keys for round 1"):
        ask(trained, 0, "unmask", {"delivered": [1, 2, 3], "dropped": [0]})


@pytest.fixture
def agreed():
    """Four devices that have shared their secrets, and the calls for training that follow."""
    fleet = Fleet(drawn_updates(4, 50), Masked())
    return fleet, fleet.summation.open_round(fleet.invitation()).messages


def test_a_device_masks_one_vector_per_round(agreed):
    fleet, calls = agreed
    with pytest.raises(ProtocolError, match="nothing to unmask yet"):
        ask(fleet, 0, "unmask", {"delivered": [0, 1, 2, 3], "dropped": []})
    fleet.grid.send_and_receive(calls[:1])
    with pytest.raises(ProtocolError, match="sent already"):
        fleet.grid.send_and_receive(calls[:1])


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (lambda order: {key: order[key][:1] for key in order}, "hide too little"),
        (lambda order: {key: order[key] + order[key][:1] for key in order}, "sends one share"),
        (lambda order: {**order, "senders": order["senders"][::-1]}, None),
    ],
    ids=["left out", "doubled", "swapped"],
)
def test_a_device_sees_through_shares_that_were_tampered_with(agreed, tamper, why):
    fleet, calls = agreed
    order = dict(calls[0].content["masking"])
    calls[0].content["masking"] = ConfigRecord(tamper(order))
    with pytest.raises(ProtocolError if why else InvalidToken, match=why):
        fleet.grid.send_and_receive(calls[:1])


def test_a_device_refuses_a_threshold_that_protects_nobody():
    fleet = Fleet(drawn_updates(4, 50), Masked())
    keys = [ask(fleet, k, "keys", {}) for k in range(4)]
    roster = {
        "seat": 0,
        "mask-publics": [key["mask-public"] for key in keys],
        "talk-publics": [key["talk-public"] for key in keys],
    }
    with pytest.raises(ProtocolError, match="protects nobody"):
        ask(fleet, 0, "shares", {**roster, "threshold": 2})
    with pytest.raises(ProtocolError, match="not the ones of the device"):
        ask(fleet, 1, "shares", {**roster, "threshold": 3})
    assert len(ask(fleet, 0, "shares", {**roster, "threshold": 3})["sealed"]) == 4
