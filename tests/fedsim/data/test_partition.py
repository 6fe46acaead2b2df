import numpy as np
import pytest

from fedsim.core.errors import UserError
from fedsim.data import Dirichlet, Examples, Iid, Property
from fedsim.data.sizes import PowerLaw
from scenarios.run.scenario import load_scenario
from scenarios.run.world import World

BALANCED = np.repeat(np.arange(10), 50)
UNBALANCED = np.repeat([0, 1, 2], [400, 80, 20])
EVERY_WAY = [Iid(), Iid(size_spread=0.6), Dirichlet(alpha=0.1), Dirichlet(alpha=5.0, size_spread=0.6)]


def deal(partition, labels, clients, dataset_size, seed=0):
    return partition.deal(Examples(labels, labels), clients, dataset_size, np.random.default_rng(seed))


def class_shares(owned, labels):
    """(clients, classes) what part of a client's images is of each class."""
    counts = np.stack([np.bincount(labels[mine], minlength=labels.max() + 1) for mine in owned])
    return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("partition", EVERY_WAY, ids=repr)
@pytest.mark.parametrize("labels", [BALANCED, UNBALANCED], ids=["balanced", "unbalanced"])
def test_no_image_is_dealt_twice_and_the_seed_decides(partition, labels):
    owned = deal(partition, labels, 12, 20)
    everything = np.concatenate(owned)
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < len(labels)
    again, other = deal(partition, labels, 12, 20), deal(partition, labels, 12, 20, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(owned, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(owned, other, strict=True))


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(alpha=0.1)], ids=repr)
@pytest.mark.parametrize("dataset_size", [1, 20, 50])
def test_without_spread_all_clients_own_as_much(partition, dataset_size):
    assert {len(mine) for mine in deal(partition, BALANCED, 10, dataset_size)} == {dataset_size}


@pytest.mark.parametrize("partition", [Iid(size_spread=0.5), Dirichlet(size_spread=0.5)], ids=repr)
def test_spread_draws_sizes_around_the_dataset_size(partition):
    sizes = {len(mine) for mine in deal(partition, np.tile(BALANCED, 10), 400, 10)}
    assert sizes == set(range(5, 16))


@pytest.mark.parametrize("scheme", [Iid, Dirichlet])
def test_sizes_from_a_list(scheme):
    owned = deal(scheme(sizes=(5, 1, 30)), BALANCED, 3, 20)
    assert [len(mine) for mine in owned] == [5, 1, 30]
    with pytest.raises(UserError, match=r"data\.partition\.sizes: 3 sizes for 4 clients"):
        deal(scheme(sizes=(5, 1, 30)), BALANCED, 4, 20)
    with pytest.raises(UserError, match=r"data\.partition\.sizes: 2 clients × 1 to 500 examples need 501"):
        deal(scheme(sizes=(1, 500)), BALANCED, 2, 20)


def test_sizes_by_a_power_law_have_the_mean_and_a_heavy_tail():
    labels = np.tile(BALANCED, 100)
    sizes = np.array([len(mine) for mine in deal(Iid(sizes=PowerLaw(exponent=1.5)), labels, 1000, 20)])
    assert sizes.mean() == pytest.approx(20, rel=0.05)
    assert sizes.max() > 10 * np.median(sizes)
    assert min(len(mine) for mine in deal(Iid(sizes=PowerLaw(smallest=9)), labels, 100, 10)) == 9


def test_spread_leaves_nobody_without_images():
    assert {len(mine) for mine in deal(Iid(size_spread=0.99), BALANCED, 100, 1)} == {1}


def test_iid_deals_consecutive_pieces_of_one_permutation():
    """Runs of earlier versions can be repeated: their seed still deals the same images."""
    order = np.random.default_rng(3).permutation(500)
    for client, mine in enumerate(deal(Iid(), BALANCED, 9, 11, seed=3)):
        assert np.array_equal(mine, order[client * 11 : (client + 1) * 11])


def test_small_alpha_skews_and_large_alpha_tends_to_iid():
    labels = np.tile(UNBALANCED, 20)
    overall = class_shares([np.arange(len(labels))], labels)[0]
    distance = {
        alpha: np.abs(class_shares(deal(Dirichlet(alpha=alpha), labels, 40, 50), labels) - overall).mean()
        for alpha in (0.05, 0.5, 1000.0)
    }
    iid = np.abs(class_shares(deal(Iid(), labels, 40, 50), labels) - overall).mean()
    assert distance[0.05] > distance[0.5] > 2 * iid
    assert distance[1000.0] < 1.5 * iid


@pytest.mark.parametrize("alpha", [1e-9, 0.01, 1e6])
def test_dirichlet_can_deal_out_everything(alpha):
    owned = deal(Dirichlet(alpha=alpha), UNBALANCED, 10, 50)
    assert np.array_equal(np.sort(np.concatenate(owned)), np.arange(500))


@pytest.mark.parametrize("partition", [Iid(), Dirichlet()], ids=repr)
def test_too_few_images_name_the_setting(partition):
    with pytest.raises(UserError, match=r"clients\.dataset_size: 51 clients × 10 examples need 510.*are 500"):
        deal(partition, BALANCED, 51, 10)


def test_too_few_images_for_the_sizes_drawn():
    with pytest.raises(UserError, match=r"60 clients × 5 to 15 examples need \d+ training examples.*are 500"):
        deal(Iid(size_spread=0.5), BALANCED, 60, 10)


def test_partition_is_a_setting_of_the_data(scenario_file):
    scenario = load_scenario(
        scenario_file, ['data.partition={ name = "dirichlet", alpha = 0.3, size_spread = 0.5 }']
    )
    assert scenario.data.partition == Dirichlet(alpha=0.3, size_spread=0.5)
    assert 8 <= min(map(len, World.prepare(scenario).owned)) < max(map(len, World.prepare(scenario).owned))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.partition=pathological", "data.partition.name is 'pathological': expected 'iid', 'dirichlet'"),
        ("data.partition={ name = 'dirichlet', alpha = 0 }", "data.partition.alpha is 0: expected greater"),
        ("data.partition.size_spread=1", "data.partition"),
    ],
)
def test_mistakes_name_the_key(scenario_file, override, message):
    with pytest.raises(UserError) as caught:
        load_scenario(scenario_file, [override])
    assert message in str(caught.value)


RED = {"red": np.arange(500) % 5 == 0}


def test_property_goes_to_its_holders_and_to_nobody_else():
    owned = Property(attribute="red", share=0.5, holders=0.25).deal(
        Examples(BALANCED, BALANCED, RED), 12, 20, np.random.default_rng(0)
    )
    everything = np.concatenate(owned)
    assert len(np.unique(everything)) == len(everything) == 240
    assert sorted(RED["red"][mine].sum() for mine in owned) == [0] * 9 + [10] * 3
    again = Property(attribute="red", share=0.5, holders=0.25).deal(
        Examples(BALANCED, BALANCED, RED), 12, 20, np.random.default_rng(0)
    )
    assert all(np.array_equal(a, b) for a, b in zip(owned, again, strict=True))


@pytest.mark.parametrize(
    ("partition", "attributes", "message"),
    [
        (Property(attribute="blue"), RED, "data.partition.attribute is 'blue': expected one of red"),
        (Property(attribute="red"), {}, "none: these data have no attributes"),
        (Property(attribute="red", holders=0.9), RED, "18 of them with 'red', need 180 training examples"),
        (Property(attribute="red", holders=0.05), {"red": np.ones(500, dtype=bool)}, "need 390"),
    ],
)  # fmt: skip
def test_property_mistakes_are_one_line(partition, attributes, message):
    with pytest.raises(UserError) as caught:
        partition.deal(Examples(BALANCED, BALANCED, attributes), 20, 20, np.random.default_rng(0))
    assert message in str(caught.value)
