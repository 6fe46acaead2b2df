"""`SecureAggregation`: anybody's Flower strategy, which learns sums and no single update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import wraps
from logging import INFO, WARNING
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Result, Strategy

from fedsim.core.errors import UserError
from fedsim.flower import WEIGHT
from fedsim.secure.coordinator import Coordinator
from fedsim.secure.terms import Terms, checked
from fedsim.server.attachment import Attachment, Summed, attachments, innermost, replace_method
from fedsim.trusted.masking.settings import Masked

_NEED_SINGLE_REPLIES = (
    flower.Bulyan,
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
    flower.FedMedian,
    flower.FedTrimmedAvg,
    flower.FedXgbBagging,
    flower.FedXgbCyclic,
    flower.Krum,
    flower.QFedAvg,
)
"""Strategies of Flower that compare, clip, count or collect single replies. A mean is of no use to them."""


class SecureAggregation(Attachment):
    """The strategy inside, which gets one reply per round: the mean model of a cohort, under secure sums.

    Calls, attributes and results are those of the strategy inside, a `start()` of its own included. It draws
    its samples as before. The clients need `secure_mod` and `answer_secure_aggregation`. They take the
    difference to the model that they were sent, and mask it. The sum of n·update and n is all that the server
    learns, where n is the metric `weighted_by` (None: every client counts once), and the sum of n·metric for
    the listed `metrics`. So the mean is the one that Flower's `FedAvg` takes of the single replies. Other
    metrics stay on the clients. With `evaluate_metrics`, evaluation is masked in the same way.

    Float arrays of any shape are summed; all others keep the values of the model that was sent. A client that
    fails is a dropout. If fewer than `threshold` of the cohort deliver, or fewer than `minimum_cohort`, the
    round is void and the model stays.

    Bounds: an update longer than `clip` (L2) is shortened to it. An entry of n·update is rounded to one of
    2^`bits` steps between ±clip·largest_weight; up to 22 bits it travels in 4 bytes, otherwise in 8.

    The clients that are connected at the first round enrol; the training begins when there are `clients` of
    them (default: the strategy's `min_available_nodes`). Later ones cannot join. Messages of the protocol
    wait for a reply for `time_limit_s`.
    """

    _own: ClassVar[frozenset[str]] = Attachment._own | {"_coordinator"}
    _hides_replies: ClassVar[bool] = True

    def __init__(
        self,
        strategy: Strategy,
        *,
        threshold: float = 0.67,
        minimum_cohort: int = 3,
        weighted_by: str | None = WEIGHT,
        metrics: Sequence[str] = (),
        evaluate_metrics: Sequence[str] | None = None,
        clip: float = 100.0,
        largest_weight: float = 1e6,
        bits: int = 53,
        clients: int | None = None,
        time_limit_s: float = 600.0,
    ) -> None:
        masked = checked(Masked, "SecureAggregation", threshold=threshold, minimum_cohort=minimum_cohort)
        trained = checked(
            Terms,
            "SecureAggregation",
            weighted_by=weighted_by,
            metrics=_names("metrics", metrics, weighted_by),
            clip=clip,
            largest_weight=largest_weight,
            bits=bits,
        )
        evaluated = None
        if evaluate_metrics is not None:
            names = _names("evaluate_metrics", evaluate_metrics, weighted_by)
            evaluated = trained.model_copy(update={"arrays": False, "metrics": names})
        if clients is not None and (not isinstance(clients, int) or clients < minimum_cohort):
            raise UserError(
                f"SecureAggregation(clients={clients!r}): expected {minimum_cohort} or more, or None"
            )
        if not isinstance(time_limit_s, int | float) or time_limit_s <= 0:
            raise UserError(f"SecureAggregation(time_limit_s={time_limit_s!r}): expected a number above 0")
        super().__init__(strategy)
        inside = innermost(strategy)
        _check_strategy(strategy, weighted_by)
        wanted = max(minimum_cohort, clients or int(getattr(inside, "min_available_nodes", 0)))
        coordinator = Coordinator(
            masked,
            weighted_by=weighted_by,
            weight_key=weighted_by or str(getattr(inside, "weighted_by_key", WEIGHT)),
            wanted=wanted,
            time_limit_s=time_limit_s,
        )
        object.__setattr__(self, "_coordinator", coordinator)
        _attach_training(inside, coordinator, trained)
        if evaluated is not None:
            _attach_evaluation(inside, coordinator, evaluated)
        elif getattr(inside, "fraction_evaluate", 0):
            log(
                WARNING,
                "SecureAggregation: evaluation is not masked: list its metrics in evaluate_metrics, "
                "or set fraction_evaluate=0",
            )

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`."""
        result = self.inner.start(*args, **kwargs)
        coordinator: Coordinator = self._coordinator
        level = INFO if coordinator.summed else WARNING
        log(level, "SecureAggregation: %s sums, %s void rounds", coordinator.summed, coordinator.void)
        return result


def _names(argument: str, metrics: Sequence[str], weighted_by: str | None) -> tuple[str, ...]:
    """The metrics to add up, each once; the weight is added up anyway."""
    if isinstance(metrics, str) or not all(isinstance(metric, str) for metric in metrics):
        raise UserError(f"SecureAggregation({argument}={metrics!r}): expected a list of names")
    return tuple(metric for metric in dict.fromkeys(metrics) if metric != weighted_by)


def _check_strategy(strategy: Strategy, weighted_by: str | None) -> None:
    """A `UserError` if the strategy cannot work with sums."""
    inside = innermost(strategy)
    for attachment in attachments(strategy):
        if attachment._hides_replies:
            raise UserError("SecureAggregation around SecureAggregation: expected one of them")
        attachment._expect_sums(Summed(weighted_by))
    if isinstance(inside, _NEED_SINGLE_REPLIES):
        raise UserError(
            f"SecureAggregation: {type(inside).__name__} needs the single replies of clients, which are "
            "hidden; expected a strategy that works with their mean"
        )
    key = getattr(inside, "weighted_by_key", weighted_by)
    if weighted_by is not None and key != weighted_by:
        raise UserError(
            f"SecureAggregation(weighted_by={weighted_by!r}): {type(inside).__name__} weights by {key!r}, "
            "expected the same"
        )


def _attach_training(strategy: Strategy, coordinator: Coordinator, terms: Terms) -> None:
    """Mask the calls for training, and hand over one reply, on the object itself."""
    configure, aggregate = strategy.configure_train, strategy.aggregate_train
    sent = ArrayRecord()

    @wraps(configure)
    def configure_train(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        nonlocal sent
        sent = arrays
        return coordinator.configure(
            grid, lambda enrolled: configure(server_round, arrays, config, enrolled), terms
        )

    @wraps(aggregate)
    def aggregate_train(
        server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        summed = coordinator.aggregate(replies)
        if summed is None:
            return sent, None
        model, metrics = aggregate(server_round, [summed])
        return model and _with_integers_of(sent, model), metrics

    replace_method(strategy, "configure_train", configure_train)
    replace_method(strategy, "aggregate_train", aggregate_train)


def _attach_evaluation(strategy: Strategy, coordinator: Coordinator, terms: Terms) -> None:
    """The same for calls for evaluation, which carry metrics back and no arrays."""
    configure, aggregate = strategy.configure_evaluate, strategy.aggregate_evaluate

    @wraps(configure)
    def configure_evaluate(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return coordinator.configure(
            grid, lambda enrolled: configure(server_round, arrays, config, enrolled), terms
        )

    @wraps(aggregate)
    def aggregate_evaluate(server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        summed = coordinator.aggregate(replies)
        return aggregate(server_round, [summed]) if summed is not None else None

    replace_method(strategy, "configure_evaluate", configure_evaluate)
    replace_method(strategy, "aggregate_evaluate", aggregate_evaluate)


def _with_integers_of(sent: ArrayRecord, model: ArrayRecord) -> ArrayRecord:
    """The model, with the integer arrays that were sent: strategies average them, and make floats of them."""
    for name, array in sent.items():
        if name in model and array.dtype != model[name].dtype and not array.dtype.startswith("float"):
            model[name] = array
    return model
