"""The sums themselves: against plain sums, against Flower's SecAgg+, and against a server that lies."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from benchmarks.secure_aggregation import flower
from fedsim import SecureAggregation, answer_secure_aggregation, secure_mod
from fedsim.flower import enter_local_task, records_from_bytes, records_to_bytes
from fedsim.grids.inline import InlineGrid
from fedsim.secure.calls import agreed_terms
from fedsim.secure.terms import LARGEST_NUMBER, Terms
from fedsim.trusted.masking.errors import GarbledError
from fedsim.trusted.masking.fixed_point import OutOfRangeError
from tests.helpers.foreign_app import initial_arrays
from tests.helpers.secured_app import secured_grid, start, warnings  # noqa: F401

WEIGHTS = [3, 50, 7, 120, 64]
VECTORS = [np.random.default_rng(k).normal(scale=0.05, size=400).astype(np.float32) for k in range(5)]
TERMS = Terms(weighted_by="n", metrics=("loss",), clip=10.0, largest_weight=1e3, bits=53)


def secure_mean():
    """The mean of the vectors by secure sums."""
    enter_local_task()
    app = ClientApp(mods=[secure_mod])

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        content = RecordDict(
            {
                "arrays": ArrayRecord({"v": Array(VECTORS[client].astype(np.float64))}),
                "metrics": MetricRecord({"num-examples": WEIGHTS[client]}),
            }
        )
        return Message(content, reply_to=message)

    grid = InlineGrid(answer_secure_aggregation(app), len(VECTORS))
    arrays = ArrayRecord({"v": Array(np.zeros(400))})
    result = start(SecureAggregation(FedAvg(fraction_evaluate=0.0)), grid, 1, arrays)
    return result.arrays["v"].numpy()


def test_the_mean_is_the_plain_one_and_that_of_secagg_plus():
    """SecAgg+ rounds entries at random to 8/2²² of a step, and weights to whole parts of 1,000."""
    plain = np.average(np.array(VECTORS, dtype=np.float64), axis=0, weights=WEIGHTS)
    np.testing.assert_allclose(secure_mean(), plain, atol=1e-9)
    _, theirs = flower(VECTORS, WEIGHTS)
    np.testing.assert_allclose(theirs, plain, atol=1e-4)
    np.testing.assert_allclose(secure_mean(), theirs, atol=1e-4)


@pytest.mark.parametrize("bits", [8, 22, 23, 40, 53])
@pytest.mark.parametrize("members", [1, 3, 1000])
def test_sums_of_words_are_sums_of_numbers(bits, members):
    """Also of as many extreme ones as a cohort can have: nothing wraps around."""
    terms = Terms(weighted_by="n", metrics=("a", "b"), clip=2.0, largest_weight=50.0, bits=bits)
    rng = np.random.default_rng(bits)
    updates = rng.uniform(-1, 1, (members, 3))
    updates[members // 2 :] = [2.0, 0.0, 0.0]
    weights = rng.uniform(0.5, 50, members)
    weights[members // 2 :] = 50.0
    metrics = rng.normal(size=(members, 2)) * [1e-3, 1e6]
    rows = [terms.encode(u, w, m.tolist()) for u, w, m in zip(updates, weights, metrics, strict=True)]
    words = np.asarray(np.sum(rows, axis=0, dtype=rows[0].dtype))
    assert words.dtype == (np.uint32 if bits <= 22 else np.uint64)
    assert len(words) == terms.words(3)
    total = terms.decode(words, members)
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    clipped = updates * np.minimum(1, 2.0 / lengths)
    step = 2 * 2.0 * 50 / (2**bits - 2)
    np.testing.assert_allclose(total.entries, weights @ clipped, atol=members * step / 2 + 1e-9)
    assert total.weight == pytest.approx(weights.sum(), abs=members * 2**-32)
    assert total.metrics["a"] == pytest.approx((weights * metrics[:, 0]).sum(), abs=members * 2**-32)
    assert total.metrics["b"] == pytest.approx((weights * metrics[:, 1]).sum(), rel=1e-12)
    assert total.shortened == int((lengths > 2.0).sum())


@pytest.mark.parametrize(
    ("update", "weight", "metric", "said"),
    [
        ([np.nan], 1.0, 0.0, "not finite"),
        ([np.inf], 1.0, 0.0, "not finite"),
        ([0.1], 0.0, 0.0, "its weight 'n' is 0, expected a number above 0 and up to largest_weight = 1000"),
        ([0.1], 1001.0, 0.0, "its weight 'n' is 1001"),
        ([0.1], np.nan, 0.0, "its weight 'n' is nan"),
        ([0.1], 1.0, np.nan, "its metric 'loss' times its weight is nan"),
        ([0.1], 2.0, LARGEST_NUMBER, "its metric 'loss' times its weight is 1.4"),
    ],
)
def test_numbers_that_do_not_fit(update, weight, metric, said):
    with pytest.raises(OutOfRangeError, match=said):
        TERMS.encode(np.array(update), weight, [metric])


def test_masks_that_do_not_cancel_are_noticed():
    words = TERMS.encode(np.array([0.5, 0.25]), 3.0, [1.0])
    assert TERMS.decode(words, 1).weight == 3.0
    with pytest.raises(GarbledError, match="the masks do not cancel"):
        TERMS.decode(words + np.uint64(12345), 1)


# A server that lies


class Lying(InlineGrid):
    """Changes the calls for training to one client on their way."""

    def __init__(self, honest, change):
        super().__init__(honest._client_app, 5, faults="reply")
        self._change = change

    def _deliver(self, message):
        if message.metadata.message_type == "train" and message.metadata.dst_node_id == 1002:
            self._change(message)
        return super()._deliver(message)


def other_model(message):
    message.content["arrays"] = initial_arrays("float32")
    message.content["arrays"]["layer.bias"] = Array(np.full(4, 9, dtype=np.float32))


def other_setting(message):
    message.content["config"] = ConfigRecord({"server-round": 1, "lr": 0.0})


def changed_terms(**changes):
    def change(message):
        terms = json.loads(message.content["secure-sum"]["terms"]) | changes
        message.content["secure-sum"] = ConfigRecord({"terms": json.dumps(terms)})

    return change


@pytest.mark.parametrize(
    "change",
    [
        other_model,
        other_setting,
        changed_terms(weighted_by=None),
        changed_terms(clip=1e-6),
        changed_terms(metrics=["num-examples"]),
    ],
    ids=["model", "setting", "weights", "clip", "metrics"],
)
def test_a_client_cannot_be_singled_out(change, warnings):  # noqa: F811
    """One client gets another call: its masks cancel with nobody's, and the server learns no sum."""
    strategy = SecureAggregation(FedAvg(), metrics=["loss"])
    before = initial_arrays()["layer.bias"].numpy()
    result = start(strategy, Lying(secured_grid(), change), rounds=1)
    assert "the masks do not cancel" in warnings.text
    np.testing.assert_array_equal(result.arrays["layer.bias"].numpy(), before)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed_terms(weighted_by="loss"), "the server weights by 'loss', this client allows"),
        (changed_terms(clip="wide"), "lacks the terms of the sum"),
        (lambda message: message.content.pop("secure-sum"), "lacks the terms of the sum"),
        (lambda message: message.content.pop("masking"), "this client sends updates under masks only"),
    ],
    ids=["weights", "terms", "no terms", "no masks"],
)
def test_a_client_refuses_what_would_expose_it(change, said, warnings):  # noqa: F811
    start(SecureAggregation(FedAvg()), Lying(secured_grid(), change), rounds=1)
    assert f"client 1002 drops out of the round: {said}" in warnings.text.replace(
        "ContradictionError: a call for training ", ""
    ).replace("ContradictionError: ", "")
    assert "1 sums, 0 void rounds" in warnings.text


def test_both_sides_see_the_same_call():
    """Whatever the wire does to a message; and another call has another digest."""
    enter_local_task()
    arrays = {
        "a": np.arange(6, dtype=np.float16).reshape(2, 3).T,
        "b": np.array(3),
        "c": np.zeros((0, 2)),
        "d": np.array([True, False]),
    }

    def call(**config):
        values: dict[str, Any] = {
            "lr": 0.1,
            "n": 3,
            "on": True,
            "s": "x",
            "raw": b"\x00\xff",
            "many": [1.5, 2.0],
        } | config
        return RecordDict(
            {
                "z": ConfigRecord(values),
                "arrays": ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()}),
                "m": MetricRecord({"loss": 1, "scores": [1.0, 2.5]}),
            }
        )

    digest = agreed_terms("train", call(), "t")
    assert agreed_terms("train", records_from_bytes(records_to_bytes(call())), "t") == digest
    others = [call(lr=0.2), call(raw=b"\x00"), call(many=[1.5]), call(n=4), call(new=1)]
    arrays["b"] = np.array(4)
    others.append(call())
    digests = {agreed_terms("train", other, "t") for other in others}
    digests |= {agreed_terms("evaluate", call(), "t"), agreed_terms("train", call(), "u")}
    assert len(digests) == 8
    assert digest not in digests
