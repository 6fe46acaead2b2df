"""Defences: what devices send, what the server sees, and what is promised."""

import itertools
from typing import get_args

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from pydantic_core import PydanticCustomError

from fedsim.core.errors import UserError
from fedsim.core.seeds import Stage, stream
from fedsim.defences import AnyDefence, CentralDp, Clipping, LocalDp, Noise, Quantisation, TopK
from fedsim.defences.accounting import gaussian_epsilon
from fedsim.defences.defence import in_order
from fedsim.flower import WEIGHT, enter_local_task, parameters_of, record_vector, vector_record
from fedsim.server.strategy import server_strategy
from fedsim.trusted.cohort import CohortGrid, cohort_reply
from scenarios.run.scenario import load_scenario

UPDATE = np.random.default_rng(0).normal(size=2000).astype(np.float32)
NORM = float(np.linalg.norm(UPDATE))


def wrapped(mod, call):
    return lambda message, context: mod(message, context, call)


def sent(defence, update=UPDATE, *, client=3, server_round=5, seed=1, place=0, model=0.0):
    """What a device with this update answers to a call for training."""
    enter_local_task()
    config = ConfigRecord({"server-round": server_round})
    arrays = vector_record(np.full_like(update, model))
    message = Message(RecordDict({"arrays": arrays, "config": config}), 1, "train")
    context = Context(1, 1, {"partition-id": client}, RecordDict(), {})

    def train(message, context):
        content = RecordDict({"arrays": vector_record(update), "metrics": MetricRecord({WEIGHT: 4})})
        return Message(content, reply_to=message)

    call = train
    for mod in defence.device_mods(seed, place):
        call = wrapped(mod, call)
    return record_vector(call(message, context))


def test_clipping_shortens_only_what_is_too_long():
    assert np.linalg.norm(sent(Clipping(norm=NORM / 2))) == pytest.approx(NORM / 2, rel=1e-5)
    np.testing.assert_array_equal(sent(Clipping(norm=2 * NORM)), UPDATE)
    assert not sent(Clipping(norm=1.0), np.zeros(3, dtype=np.float32)).any()


def test_noise_has_its_size():
    assert (sent(Noise(sd=0.5)) - UPDATE).std() == pytest.approx(0.5, rel=0.1)


def test_top_k_keeps_the_largest():
    sparse = sent(TopK(fraction=0.1))
    kept = sparse != 0
    assert kept.sum() == 200
    assert np.abs(UPDATE[kept]).min() >= np.abs(UPDATE[~kept]).max()
    np.testing.assert_array_equal(sparse[kept], UPDATE[kept])


def test_quantisation_leaves_few_values_and_the_mean():
    coarse = sent(Quantisation(bits=2))
    assert len(np.unique(coarse)) == 4
    mean = np.mean([sent(Quantisation(bits=2), server_round=r) for r in range(1, 201)], axis=0)
    step = 2 * np.abs(UPDATE).max() / 3
    assert np.abs(mean - UPDATE).max() < 5 * step / 2 / np.sqrt(200)


@pytest.mark.parametrize("model", [0.0, 3.0])
def test_local_dp_is_flowers_mod_on_updates(model):
    """Clipping and noise of the stated size, whatever the model that was sent."""
    defence = LocalDp(norm=NORM / 2, epsilon=1.0)
    noise = sent(defence, model=model) - UPDATE / 2
    assert noise.std() == pytest.approx(defence.statement(1)["noise_sd"], rel=0.1)
    np.testing.assert_allclose(sent(defence, model=model), sent(defence), rtol=1e-4, atol=1e-3)


def test_an_update_survives_the_detour_over_a_model():
    """Differences of models in single precision would be wrong by 1e-7 of the model, here 1e-4."""
    gentle = LocalDp(norm=1.0, epsilon=1e12)
    update = (1e-3 * UPDATE).astype(np.float32)
    np.testing.assert_allclose(sent(gentle, update, model=1000.0), update, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    "defence", [Noise(sd=1.0), Quantisation(bits=1), LocalDp(norm=1.0, epsilon=1.0)], ids=lambda d: d.name
)
def test_randomness_is_addressed(defence):
    """The same device in the same round sends the same, whatever ran before; others send something else."""
    first = sent(defence)
    np.random.default_rng().random(5)
    np.testing.assert_array_equal(sent(defence), first)
    for other in ({"client": 4}, {"server_round": 6}, {"seed": 2}, {"place": 1}):
        assert not np.array_equal(sent(defence, **other), first)


def test_noise_on_the_sum_or_not():
    rng = stream(1, Stage.DEFENCE, 0, 0)
    on_sum = CentralDp(norm=2.0, noise_multiplier=0.5)
    assert (on_sum.on_sum(UPDATE, rng) - UPDATE).std() == pytest.approx(1.0, rel=0.1)
    on_model = CentralDp(norm=2.0, noise_multiplier=0.5, noise_on="model")
    np.testing.assert_array_equal(on_model.on_sum(UPDATE, rng), UPDATE)
    assert np.linalg.norm(sent(on_model)) == pytest.approx(2, rel=1e-5)


def test_noise_on_the_model_is_made_for_the_clients_of_its_round():
    """One client moves a mean by the norm over their number, which is not the same in every round."""
    enter_local_task()
    defence, start = CentralDp(norm=2.0, noise_multiplier=0.5, noise_on="model"), vector_record(UPDATE)
    for clients in (1, 4):
        server = defence.on_server(server_strategy("updated"), seed=1, place=0)
        (instruction,) = server.configure_train(1, start, ConfigRecord(), CohortGrid())
        total = clients * UPDATE
        model, _ = server.aggregate_train(
            1, [cohort_reply(instruction, total, weight=1.0, cohort_size=clients)]
        )
        assert (parameters_of(model) - 2 * UPDATE).std() == pytest.approx(1.0 / clients, rel=0.1)


def test_epsilon_grows_with_releases_and_falls_with_noise():
    """The accountant is Flower's; a single release lies below the textbook bound √(2 ln(1.25/δ)) / z."""
    assert 0 < gaussian_epsilon(5.0, 1, 1e-5) < np.sqrt(2 * np.log(1.25e5)) / 5
    assert gaussian_epsilon(5.0, 10, 1e-5) > gaussian_epsilon(5.0, 1, 1e-5)
    assert gaussian_epsilon(10.0, 1, 1e-5) < gaussian_epsilon(5.0, 1, 1e-5)
    assert gaussian_epsilon(5.0, 0, 1e-5) == 0
    stated = CentralDp(norm=1.0, noise_multiplier=5.0).statement(10)
    assert stated["epsilon_in_all"] == gaussian_epsilon(5.0, 10, 1e-5)
    assert stated["protects_from"] == "the server"


EXAMPLES = (
    Clipping(norm=1.0),
    Noise(sd=0.1),
    LocalDp(norm=1.0, epsilon=1.0),
    TopK(fraction=0.1),
    Quantisation(bits=2),
    CentralDp(norm=1.0, noise_multiplier=1.0),
    CentralDp(norm=1.0, noise_multiplier=1.0, noise_on="model"),
)


def test_every_defence_is_held_to_its_declaration():
    """The tests of the contract below run over all members of the union."""
    (union, *_) = get_args(AnyDefence)
    assert {type(defence) for defence in EXAMPLES} == set(get_args(union))


@pytest.mark.parametrize("defence", EXAMPLES, ids=lambda d: d.name)
def test_a_defence_lengthens_an_update_only_if_it_does_not_promise_otherwise(defence):
    rng = np.random.default_rng(3)
    updates = [scale * rng.normal(size=50).astype(np.float32) for scale in (1e-3, 0.05, 1.0, 100.0)]
    growth = [
        np.linalg.norm(sent(defence, update, server_round=r)) / np.linalg.norm(update)
        for update in updates
        for r in range(1, 6)
    ]
    assert (max(growth) <= 1 + 1e-6) == defence.never_lengthens


@pytest.mark.parametrize("defence", EXAMPLES, ids=lambda d: d.name)
def test_a_defence_states_epsilon_exactly_if_it_says_so(defence):
    keys = {"epsilon_per_round", "epsilon_in_all", "releases", "hides"}
    stated = defence.statement(7)
    assert keys & set(stated) == (keys if defence.states_epsilon else set())
    if defence.states_epsilon:
        assert 0 < stated["epsilon_per_round"] < stated["epsilon_in_all"]
        assert stated["releases"] == 7


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product(EXAMPLES, EXAMPLES)), ids=lambda d: d.name
)
def test_an_order_that_voids_an_epsilon_is_refused(first, second):
    """In between stands one that lengthens nothing: the need does not end with the next defence."""
    defences = (first, TopK(fraction=0.5), second)
    voids = first.needs_bounded_length and not second.never_lengthens
    if voids:
        with pytest.raises(PydanticCustomError, match=f"expected {second.name} before {first.name}"):
            in_order(defences)
    else:
        assert in_order(defences) == defences


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("defences=['magic']", "defences.0.name is 'magic': expected 'clipping'"),
        ("defences=[{ name = 'clipping' }]", "defences.0.norm: missing"),
        ("defences=[{ name = 'clipping', norm = 0 }]", "defences.0.norm is 0: expected greater than 0"),
        ("defences=[{ name = 'noise', sd = -1 }]", "defences.0.sd is -1: expected greater than 0"),
        ("defences=[{ name = 'top_k', fraction = 0 }]", "defences.0.fraction is 0: expected greater than 0"),
        ("defences=[{ name = 'quantisation', bits = 99 }]", "defences.0.bits is 99: expected less than"),
        (
            "defences=[{ name = 'local_dp', norm = 1, epsilon = 0 }]",
            "defences.0.epsilon is 0: expected greater",
        ),
        (
            "defences=[{ name = 'central_dp', norm = 1, noise_multiplier = 1, noise_on = 'moon' }]",
            "defences.0.noise_on is 'moon': expected 'sum' or 'model'",
        ),
        (
            "defences=[{ name = 'central_dp', norm = 1, noise_multiplier = 1 }, { name = 'noise', sd = 1 }]",
            "defences: expected noise before central_dp",
        ),
        ("defences=clipping", "defences is 'clipping': expected a valid tuple"),
        (
            "federation.participation={ name = 'batches', batch_size = 1 }",
            "federation.participation.batch_size is 1: expected greater than or equal to 2",
        ),
    ],
)
def test_mistakes_are_one_line(scenario_file, override, message):
    with pytest.raises(UserError) as caught:
        load_scenario(scenario_file, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
