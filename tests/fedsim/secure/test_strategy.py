"""Secure sums around anybody's strategy: the same training as with single replies, within the rounding."""

import random
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    Krum,
)

from fedsim import (
    ExposureMonitor,
    SecureAggregation,
    SecureMod,
    Tap,
    answer_secure_aggregation,
    secure_mod,
)
from fedsim.core.errors import UserError
from fedsim.flower import enter_local_task
from fedsim.grids.inline import InlineGrid
from fedsim.records import Transcript
from tests.helpers.foreign_app import SHAPES, examples_of, flat, foreign_app, foreign_grid, initial_arrays
from tests.helpers.secured_app import CLIENTS, secured_grid, start, warnings, weighted_mean  # noqa: F401


def floats():
    """Strategies such as FedAdam take no integers."""
    return ArrayRecord({name: initial_arrays()[name] for name in SHAPES})


class OwnStart(FedAvg):
    """A strategy with a loop, a sampling and attributes of its own."""

    def configure_train(self, server_round, arrays, config, grid):
        nodes = sorted(grid.get_node_ids())[server_round % 2 :: 2]
        record = RecordDict({"arrays": arrays, "config": ConfigRecord({"step": 0.5**server_round})})
        return [Message(record, node, "train") for node in nodes]

    def start(self, grid, initial_arrays, num_rounds=3):  # type: ignore[override]
        self.losses, arrays = [], initial_arrays
        for number in range(1, num_rounds + 1):
            replies = grid.send_and_receive(self.configure_train(number, arrays, ConfigRecord(), grid))
            arrays, metrics = self.aggregate_train(number, replies)
            self.losses.append(metrics["loss"])
        self.arrays = arrays
        return self


@pytest.mark.parametrize(
    "strategy",
    [
        lambda: FedAvg(fraction_train=0.5),
        lambda: FedAvgM(fraction_train=0.5, server_momentum=0.9),
        lambda: FedAdam(fraction_train=0.5),
        OwnStart,
    ],
    ids=["FedAvg", "FedAvgM", "FedAdam", "own"],
)
def test_the_training_is_that_of_single_replies(strategy):
    plain, secure = strategy(), SecureAggregation(strategy(), metrics=["loss"])
    expected = start(plain, foreign_grid(CLIENTS, floats_only=True), arrays=floats())
    result = start(secure, secured_grid(floats_only=True), arrays=floats())
    for name in SHAPES:
        np.testing.assert_allclose(result.arrays[name].numpy(), expected.arrays[name].numpy(), atol=2e-6)
        assert result.arrays[name].dtype == expected.arrays[name].dtype
    if isinstance(expected, OwnStart):
        assert secure.losses == pytest.approx(expected.losses)
    else:
        for number, metrics in expected.train_metrics_clientapp.items():
            assert result.train_metrics_clientapp[number]["loss"] == pytest.approx(metrics["loss"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arrays_of_any_type_and_shape(dtype):
    """Integers keep the value that was sent; buffers of floats are summed like all floats."""
    result = start(SecureAggregation(FedAvg()), arrays=initial_arrays(dtype), rounds=2)
    before = initial_arrays(dtype)
    for name in SHAPES:
        moved = result.arrays[name].numpy().astype(float) - before[name].numpy()
        tolerance = {"float16": 4e-3, "float32": 1e-6, "float64": 1e-10}[dtype]
        np.testing.assert_allclose(moved, 2 * weighted_mean(name, range(CLIENTS)), atol=tolerance)
        assert result.arrays[name].dtype == dtype
    mean = sum(k * examples_of(k) for k in range(CLIENTS)) / sum(map(examples_of, range(CLIENTS)))
    np.testing.assert_allclose(result.arrays["norm.running_mean"].numpy(), 2 * mean, rtol=1e-2)
    counter = result.arrays["norm.num_batches_tracked"]
    assert (counter.dtype, counter.numpy()) == ("int64", 0)


@pytest.mark.parametrize(("bits", "bytes_per_entry"), [(22, 4), (23, 8), (53, 8)])
def test_bits_bound_the_error_and_the_message(bits, bytes_per_entry):
    sizes = []

    def watching(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "train":
            assert list(reply.content) == ["arrays"]
            assert list(reply.content["arrays"]) == ["masked"]
            sizes.append(reply.content["arrays"]["masked"].numpy().itemsize)
        return reply

    enter_local_task()
    app = answer_secure_aggregation(foreign_app(mods=[watching, secure_mod], floats_only=True))
    grid = InlineGrid(app, CLIENTS, faults="reply")
    strategy = SecureAggregation(FedAvg(), bits=bits, clip=5.0, largest_weight=20, metrics=["loss"])
    result = start(strategy, grid, 1, floats())
    assert set(sizes) == {bytes_per_entry}
    # Each client is off by half a step of n·update, and the mean divides by the total weight.
    step = 2 * 5.0 * 20 / (2**bits - 2)
    bound = CLIENTS * step / 2 / sum(map(examples_of, range(CLIENTS)))
    for name in SHAPES:
        moved = result.arrays[name].numpy() - initial_arrays()[name].numpy()
        np.testing.assert_allclose(moved, weighted_mean(name, range(CLIENTS)), atol=bound + 3e-7)
    losses = [examples_of(k) / (k + 1) for k in range(CLIENTS)]
    weight = sum(map(examples_of, range(CLIENTS)))
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(sum(losses) / weight, rel=1e-6)


def test_every_client_may_count_once():
    result = start(SecureAggregation(FedAvg(), weighted_by=None), rounds=1)
    for name in SHAPES:
        moved = result.arrays[name].numpy() - initial_arrays()[name].numpy()
        np.testing.assert_allclose(moved, weighted_mean(name, range(CLIENTS), lambda k: 1), atol=1e-6)


def test_the_sample_is_the_strategys_own():
    class Watching(FedAvg):
        drawn: ClassVar[list[set[int]]] = []

        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            self.drawn.append({message.metadata.dst_node_id for message in messages})
            return messages

    start(Watching(fraction_train=0.5), foreign_grid(CLIENTS), rounds=5)
    plain, Watching.drawn = Watching.drawn, []
    start(SecureAggregation(Watching(fraction_train=0.5)), rounds=5)
    assert Watching.drawn == plain
    assert all(len(nodes) == 4 for nodes in plain)


@pytest.mark.parametrize("failing", [{2}, {1, 6}])
def test_a_client_that_fails_is_a_dropout(failing, warnings):  # noqa: F811
    result = start(SecureAggregation(FedAvg()), secured_grid(failing=failing), rounds=2)
    there = set(range(CLIENTS)) - failing
    for name in SHAPES:
        moved = result.arrays[name].numpy() - initial_arrays()[name].numpy()
        np.testing.assert_allclose(moved, 2 * weighted_mean(name, there), atol=1e-6)
    assert f"client {1000 + min(failing)} drops out of the round: out of memory" in warnings.text
    assert "2 sums, 0 void rounds" in warnings.text


def test_a_client_that_raises_is_a_dropout():
    def raising(message, context, call_next):
        if context.node_config["partition-id"] == 5:
            raise MemoryError("too large a batch")
        return call_next(message, context)

    result = start(SecureAggregation(FedAvg()), secured_grid(mods=[raising]), rounds=1)
    there = set(range(CLIENTS)) - {5}
    moved = result.arrays["layer.bias"].numpy() - initial_arrays()["layer.bias"].numpy()
    np.testing.assert_allclose(moved, weighted_mean("layer.bias", there), atol=1e-6)


def test_a_void_round_keeps_the_model(warnings):  # noqa: F811
    """Three of eight fail in every second round: fewer than two thirds are left."""
    failures = []

    def failing(message, context, call_next):
        number = message.content["config"]["server-round"]
        training = message.metadata.message_type == "train"
        if training and number % 2 == 0 and context.node_config["partition-id"] in (0, 3, 7):
            failures.append(number)
            raise ValueError("no power")
        return call_next(message, context)

    models = []
    start(
        SecureAggregation(FedAvg()),
        secured_grid(mods=[failing]),
        rounds=4,
        evaluate_fn=lambda number, arrays: models.append(arrays["layer.weight"].numpy().copy()),
    )
    assert failures == [2, 2, 2, 4, 4, 4]
    np.testing.assert_array_equal(models[1], models[2])
    np.testing.assert_array_equal(models[3], models[4])
    assert not np.array_equal(models[2], models[3])
    assert "2 sums, 2 void rounds" in warnings.text


def test_updates_beyond_the_bounds_are_shortened_and_said_to_be(warnings):  # noqa: F811
    largest = max(float(np.linalg.norm(flat(k))) for k in range(CLIENTS))
    arrays = floats()
    result = start(SecureAggregation(FedAvg(), clip=largest / 4), secured_grid(floats_only=True), 1, arrays)
    expected = np.zeros_like(flat(0))
    for k in range(CLIENTS):
        expected += examples_of(k) * flat(k) * min(1, largest / 4 / np.linalg.norm(flat(k)))
    expected /= sum(map(examples_of, range(CLIENTS)))
    moved = np.concatenate(
        [(result.arrays[n].numpy() - arrays[n].numpy().astype(float)).reshape(-1) for n in SHAPES]
    )
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    assert f"8 of 8 updates were longer than clip={largest / 4}" in warnings.text


def test_evaluation_can_be_masked_too():
    seen = []

    def watching(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "evaluate":
            seen.append([type(record) for record in reply.content.values()])
        return reply

    enter_local_task()
    app = answer_secure_aggregation(foreign_app(mods=[watching, secure_mod]))
    for evaluate_metrics, kinds in ((None, MetricRecord), (["accuracy"], ArrayRecord)):
        strategy = SecureAggregation(FedAvg(), evaluate_metrics=evaluate_metrics)
        result = start(strategy, InlineGrid(app, CLIENTS, faults="reply"), rounds=2)
        assert [metrics["accuracy"] for metrics in result.evaluate_metrics_clientapp.values()] == [0.5, 0.5]
        assert all(kind == [kinds] for kind in seen)
        seen.clear()


def test_evaluation_in_the_clear_is_said_to_be(warnings):  # noqa: F811
    SecureAggregation(FedAvg(fraction_evaluate=0.0))
    SecureAggregation(FedAvg(), evaluate_metrics=["accuracy"])
    assert "evaluation is not masked" not in warnings.text
    SecureAggregation(FedAvg())
    assert "evaluation is not masked: list its metrics in evaluate_metrics" in warnings.text


def test_flowers_own_mods_stand_inside():
    """Clipping on the client, noise on the server: its mod changes the update before it is masked."""
    inner = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1e-9, 0.05, CLIENTS)
    result = start(
        SecureAggregation(inner), secured_grid(mods=[fixedclipping_mod], floats_only=True), 1, floats()
    )
    moved = [result.arrays[n].numpy() - initial_arrays()[n].numpy() for n in SHAPES]
    assert np.sqrt(sum((part**2).sum() for part in moved)) < 0.05


def test_a_training_can_be_started_again():
    """Devices keep their keys and the registry, and take no round twice."""
    grid = secured_grid()
    first = start(SecureAggregation(FedAvg()), grid, rounds=2)
    second = start(SecureAggregation(FedAvg()), grid, rounds=2)
    np.testing.assert_array_equal(first.arrays["layer.bias"].numpy(), second.arrays["layer.bias"].numpy())


# The order of attachments


def test_a_tap_inside_records_the_sums_and_a_tap_cannot_stand_outside(tmp_path):
    tap = Tap(FedAvg(fraction_train=0.5), out=tmp_path / "log", window=2, weighted_by="num-examples")
    start(SecureAggregation(tap), rounds=6)
    transcript = Transcript.load(tmp_path / "log/transcript")
    P = np.zeros((6, CLIENTS))
    for line in (tmp_path / "log/truth/participation.csv").read_text().splitlines()[1:]:
        number, node = map(int, line.split(","))
        P[number, node - 1000] = 1
    np.testing.assert_array_equal(P.sum(axis=1), 4)
    weights = np.array([examples_of(k) for k in range(CLIENTS)])
    np.testing.assert_allclose(
        transcript.aggregates, (P * weights) @ np.array([flat(k) for k in range(CLIENTS)]), atol=1e-4
    )
    np.testing.assert_allclose(transcript.weights, P @ weights)
    np.testing.assert_array_equal(transcript.cohort_sizes, 4)
    with pytest.raises(UserError, match=r"write SecureAggregation\(Tap\(…\)\), which records sums"):
        Tap(SecureAggregation(FedAvg()), out=tmp_path / "other")


def test_a_tap_inside_has_to_want_what_it_gets(tmp_path):
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "Tap(weighted_by=None) inside secure aggregation: expected 'num-examples'"),
        ({"weighted_by": "num-examples", "truth": "updates"}, "single updates are hidden there"),
        ({"weighted_by": "num-examples", "replies": "updates"}, "Tap(replies='updates') inside secure"),
    ]
    for wrong, said in cases:
        with pytest.raises(UserError) as caught:
            SecureAggregation(Tap(FedAvg(), out=tmp_path / "log", **wrong))
        assert said in str(caught.value)
    with pytest.raises(UserError, match="expected one of them"):
        SecureAggregation(SecureAggregation(FedAvg()))


# What is refused, in one line and before any training


def refused(strategy, grid, **kwargs):
    random.seed(0)
    with pytest.raises(UserError) as caught:
        start(strategy, grid, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threshold": 0.5}, "SecureAggregation(threshold=0.5): expected greater than 0.5"),
        ({"threshold": "high"}, "SecureAggregation(threshold='high'): expected a valid number"),
        ({"minimum_cohort": 2}, "SecureAggregation(minimum_cohort=2): expected greater than or equal to 3"),
        ({"metrics": "loss"}, "SecureAggregation(metrics='loss'): expected a list of names"),
        (
            {"evaluate_metrics": "loss"},
            "(evaluate_metrics='loss'): expected a list of names",
        ),
        ({"clip": 0}, "SecureAggregation(clip=0): expected greater than 0"),
        ({"clip": float("nan")}, "SecureAggregation(clip=nan): expected a finite number"),
        ({"bits": 60}, "SecureAggregation(bits=60): expected less than or equal to 53"),
        ({"largest_weight": -1}, "SecureAggregation(largest_weight=-1): expected greater than 0"),
        ({"weighted_by": 5}, "SecureAggregation(weighted_by=5): expected a valid string"),
        ({"clients": 2}, "SecureAggregation(clients=2): expected 3 or more, or None"),
        ({"time_limit_s": 0}, "SecureAggregation(time_limit_s=0): expected a number above 0"),
        ({"weighted_by": "size"}, "FedAvg weights by 'num-examples', expected the same"),
    ],
)
def test_wrong_settings(settings, said):
    with pytest.raises(UserError) as caught:
        SecureAggregation(FedAvg(), **settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "strategy", [Krum(), DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0.1, 8)], ids=["Krum", "DP"]
)
def test_strategies_that_need_single_replies(strategy):
    name = type(strategy).__name__
    with pytest.raises(UserError, match=f"{name} needs the single replies of clients, which are hidden"):
        SecureAggregation(strategy)


def test_a_client_without_the_mod_or_without_the_answers():
    enter_local_task()
    trained = []

    def watching(message, context, call_next):
        trained.append(message.metadata.message_type)
        return call_next(message, context)

    plain = InlineGrid(foreign_app(mods=[watching]), CLIENTS, faults="reply")
    assert "client 1000 does not answer the protocol, its app needs ClientApp(mods=[secure_mod])" in refused(
        SecureAggregation(FedAvg()), plain
    )
    no_mod = answer_secure_aggregation(foreign_app(mods=[watching]))
    said = refused(SecureAggregation(FedAvg()), InlineGrid(no_mod, CLIENTS, faults="reply"))
    assert "client 1000 lacks the mod, its app needs ClientApp(mods=[secure_mod])" in said
    no_answers = InlineGrid(foreign_app(mods=[watching, secure_mod]), CLIENTS, faults="reply")
    assert "client 1000 does not answer the protocol" in refused(SecureAggregation(FedAvg()), no_answers)
    assert "train" not in trained


@pytest.mark.parametrize(
    ("mod", "said"),
    [
        (SecureMod(threshold=0.8), "(threshold=0.67): client 1000 has threshold=0.8, expected the same"),
        (SecureMod(minimum_cohort=4), "(minimum_cohort=3): client 1000 has minimum_cohort=4"),
        (SecureMod(weighted_by="n"), "(weighted_by='num-examples'): client 1000 allows 'n', give its"),
    ],
)
def test_settings_of_client_and_server_have_to_fit(mod, said):
    assert said in refused(SecureAggregation(FedAvg()), secured_grid(mod=mod))


def test_a_mod_with_wrong_settings():
    with pytest.raises(UserError, match=r"SecureMod\(threshold=0.2\): expected greater than 0.5"):
        SecureMod(threshold=0.2)


def test_a_client_with_the_mod_sends_nothing_in_the_clear(warnings):  # noqa: F811
    start(FedAvg(), secured_grid(), rounds=1)
    assert "this client sends updates under masks only" in warnings.text
    assert "Received 0 results and 8 failures" in warnings.text


@pytest.mark.parametrize(
    ("settings", "grid", "said"),
    [
        ({"metrics": ["los"]}, {}, "the reply cannot be added up: it has no metric 'los'"),
        ({"largest_weight": 3}, {}, "its weight 'num-examples' is 5, expected a number above 0 and up to"),
        ({}, {"wrong": range(8)}, "the array 'layer.bias' has shape (2,), expected (4,)"),
    ],
)
def test_if_no_client_can_send_anything_the_settings_are_wrong(settings, grid, said):
    assert said in refused(SecureAggregation(FedAvg(), **settings), secured_grid(**grid))


def test_one_client_that_cannot_send_is_a_dropout(warnings):  # noqa: F811
    start(SecureAggregation(FedAvg(), largest_weight=11), rounds=1)
    assert "client 1007 drops out of the round: the reply cannot be added up: its weight" in warnings.text
    assert "1 sums, 0 void rounds" in warnings.text


def test_cohorts_that_hide_too_little():
    said = refused(SecureAggregation(FedAvg(fraction_train=0.25)), secured_grid())
    assert "the strategy invites 2 clients, and a secure sum needs at least 3" in said


def test_too_few_clients(monkeypatch):
    monkeypatch.setattr("fedsim.grids.nodes.CONNECT_LIMIT_S", -1)
    assert "8 clients are connected" in refused(SecureAggregation(FedAvg(), clients=9), secured_grid())


def test_a_strategy_that_waits_for_more_clients_than_have_enrolled(monkeypatch):
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda _: None)
    strategy = SecureAggregation(FedAvg(min_available_nodes=9), clients=8)
    assert "waits for more clients than the 8 that have enrolled" in refused(strategy, secured_grid())


def test_calls_that_differ_between_clients():
    class Personal(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            for node in grid.get_node_ids():
                content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": node / 1000})})
                yield Message(content, node, "train")

    said = refused(SecureAggregation(Personal()), secured_grid())
    assert "sends clients of one round different models or settings" in said


def test_a_model_may_have_no_floats():
    """Nothing is summed then but weights and metrics."""
    arrays = ArrayRecord({"norm.num_batches_tracked": Array(np.array(3))})
    enter_local_task()
    app = answer_secure_aggregation(_counting_app())
    result = start(
        SecureAggregation(FedAvg(), metrics=["loss"]), InlineGrid(app, 4, faults="reply"), 1, arrays
    )
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(1.5)


def _counting_app():
    from flwr.clientapp import ClientApp

    app = ClientApp(mods=[secure_mod])

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 1, "loss": context.node_config["partition-id"]})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
        )

    return app


def test_a_monitor_inside_may_stop_the_training(tmp_path):
    """Its alarm ends the rounds between two secure sums; `start` returns the model so far."""
    monitor = ExposureMonitor(every=1, then="stop", attack=False)
    tap = Tap(FedAvg(), out=tmp_path / "log", window=1, weighted_by="num-examples", monitor=monitor)
    result = start(SecureAggregation(tap), rounds=12)
    rounds = len(Transcript.load(tmp_path / "log/transcript").aggregates)
    assert 0 < rounds < 12
    moved = result.arrays["layer.bias"].numpy() - initial_arrays()["layer.bias"].numpy()
    np.testing.assert_allclose(moved, rounds * weighted_mean("layer.bias", range(CLIENTS)), atol=1e-5)
