"""Defences as a mod in anybody's app: on named arrays, configured by the run config."""

from typing import get_args

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from fedsim import DefenceMod, SecureAggregation, answer_secure_aggregation, defence_mod, secure_mod
from fedsim.core.errors import UserError
from fedsim.defences import AnyDefence
from fedsim.defences.client_mod import configured
from fedsim.flower import enter_task
from fedsim.grids.inline import InlineGrid
from tests.helpers.foreign_app import SHAPES, examples_of, flat, foreign_app, initial_arrays
from tests.helpers.secured_app import start, warnings  # noqa: F401

CLIENT = 2
TEXTS = {
    "clipping": "[{ name = 'clipping', norm = 0.1 }]",
    "noise": "[{ name = 'noise', sd = 0.5 }]",
    "local_dp": "[{ name = 'local_dp', norm = 1.0, epsilon = 1e9 }]",
    "top_k": "[{ name = 'top_k', fraction = 0.25 }]",
    "quantisation": "[{ name = 'quantisation', bits = 1 }]",
}


def sent(mod, run_config, dtype="float32"):
    """What one client sends: its arrays, and what its message holds besides."""
    enter_task()
    app = foreign_app(mods=[mod])
    grid = InlineGrid(app, CLIENT + 1, run_config=run_config, faults="reply")
    strategy = FedAvg(min_train_nodes=3, min_available_nodes=3)

    calls = list(strategy.configure_train(1, initial_arrays(dtype), ConfigRecord(), grid))
    (reply,) = (r for r in grid.send_and_receive(calls) if r.metadata.src_node_id == 1000 + CLIENT)
    return reply


def update_of(reply, dtype="float32"):
    arrays, before = reply.content["model"], initial_arrays(dtype)
    return np.concatenate([(arrays[n].numpy().astype(float) - before[n].numpy()).reshape(-1) for n in SHAPES])


def test_every_defence_of_devices_is_here():
    (union, *_) = get_args(AnyDefence)
    names = {member.model_fields["name"].default for member in get_args(union)}
    assert names == {*TEXTS, "central_dp"}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_defence_on_named_arrays(name, dtype):
    reply = sent(defence_mod, {"defences": TEXTS[name]}, dtype)
    update, plain = update_of(reply, dtype), flat(CLIENT)
    slack = 2e-3 if dtype == "float16" else 1e-5
    if name == "clipping":
        np.testing.assert_allclose(update, plain * 0.1 / np.linalg.norm(plain), atol=slack)
    elif name == "noise":
        assert 0.2 < (update - plain).std() < 1.0
    elif name == "local_dp":
        np.testing.assert_allclose(update, plain / max(1, np.linalg.norm(plain)), atol=slack)
    elif name == "top_k":
        kept = np.argsort(-np.abs(plain))[:4]
        np.testing.assert_allclose(update[kept], plain[kept], atol=slack)
        np.testing.assert_allclose(np.delete(update, kept), 0, atol=slack)
    else:
        np.testing.assert_allclose(np.abs(update), np.abs(plain).max(), atol=slack)
    arrays, before = reply.content["model"], initial_arrays(dtype)
    assert [(n, a.dtype, a.shape) for n, a in arrays.items()] == [
        (n, a.dtype, a.shape) for n, a in before.items()
    ]
    for buffer in ("norm.running_mean", "norm.num_batches_tracked"):
        np.testing.assert_array_equal(arrays[buffer].numpy(), before[buffer].numpy())
    assert reply.content["metrics"]["num-examples"] == examples_of(CLIENT)


def test_noise_is_new_in_every_call():
    first, second = (update_of(sent(defence_mod, {"defences": TEXTS["noise"]})) for _ in range(2))
    assert not np.array_equal(first, second)


def test_order_and_none():
    text = "[{ name = 'top_k', fraction = 0.25 }, { name = 'clipping', norm = 0.1 }]"
    update = update_of(sent(defence_mod, {"defences": text}))
    assert np.linalg.norm(update) == pytest.approx(0.1, abs=1e-5)
    assert (np.abs(update) > 1e-6).sum() == 4
    np.testing.assert_allclose(update_of(sent(defence_mod, {"defences": "[]"})), flat(CLIENT), atol=1e-6)


def test_a_client_may_have_defences_of_its_own_and_defend_buffers_too():
    own = DefenceMod(defences=[{"name": "clipping", "norm": 0.1}], skip=())
    reply = sent(own, {"defences": "[]"})
    assert np.linalg.norm(update_of(reply)) < 0.1
    assert reply.content["model"]["norm.running_mean"].numpy().any()


def test_defences_come_before_the_masks():
    enter_task()
    app = answer_secure_aggregation(foreign_app(mods=[secure_mod, defence_mod]))
    grid = InlineGrid(app, 5, run_config={"defences": TEXTS["clipping"]}, faults="reply")
    result = start(SecureAggregation(FedAvg(), weighted_by=None), grid, rounds=1)
    expected = np.mean([flat(k) * 0.1 / np.linalg.norm(flat(k)) for k in range(5)], axis=0)
    before = initial_arrays()
    moved = np.concatenate([(result.arrays[n].numpy() - before[n].numpy()).reshape(-1) for n in SHAPES])
    np.testing.assert_allclose(moved, expected, atol=1e-6)


WRONG = {
    "is None, expected a text such as": None,
    "is 3, expected a text such as": 3,
    "'[{' is not a list in TOML, such as [{ name": "[{",
    "run config, defences: 0: Input tag 'magic'": "['magic']",
    "run config, defences: 0.clipping.norm: Field required": "['clipping']",
    "run config, defences: 0.clipping.norm: Input should be greater than 0": "[{name='clipping', norm=0}]",
    "run config, defences: all: ": "{}",
    "central_dp needs a trusted place": "[{name='central_dp', norm=1.0, noise_multiplier=1.0}]",
}


@pytest.mark.parametrize("said", WRONG)
def test_mistakes_are_one_line_and_nothing_leaves(said, warnings):  # noqa: F811
    run_config = {} if WRONG[said] is None else {"defences": WRONG[said]}
    with pytest.raises(UserError) as caught:
        configured(run_config)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    reply = sent(defence_mod, run_config)
    assert reply.has_error()
    assert reply.error.reason == str(caught.value)


def test_wrong_settings_of_the_mod():
    with pytest.raises(UserError, match=r"DefenceMod\(defences=…\): 0\.noise\.sd: Field required"):
        DefenceMod(defences=[{"name": "noise"}])
    with pytest.raises(UserError, match=r"DefenceMod\(skip='\*'\): expected a list of patterns"):
        DefenceMod(skip="*")


def test_under_secure_sums_a_wrong_run_config_ends_the_training_before_the_second_round():
    enter_task()
    app = answer_secure_aggregation(foreign_app(mods=[secure_mod, defence_mod]))
    grid = InlineGrid(app, 5, run_config={"defences": "['magic']"}, faults="reply")
    with pytest.raises(UserError, match="client 1000: run config, defences: 0: Input tag 'magic'"):
        start(SecureAggregation(FedAvg()), grid, rounds=2)


def test_arrays_of_another_shape_do_not_leave():
    enter_task()
    grid = InlineGrid(foreign_app(mods=[DefenceMod(defences=[])], wrong={0}), 1, faults="reply")

    strategy = FedAvg(min_train_nodes=1, min_available_nodes=1)
    calls = strategy.configure_train(1, initial_arrays(), ConfigRecord(), grid)
    (reply,) = grid.send_and_receive(calls)
    assert "cannot be defended: the array 'layer.weight' has shape (2, 3)" in reply.error.reason
