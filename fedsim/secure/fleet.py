"""The clients that take part in secure sums: all that were connected when the training began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING

from flwr.app import ConfigRecord, Message
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedsim.core.errors import UserError
from fedsim.flower import config_in
from fedsim.grids.nodes import CONNECT_LIMIT_S, connected
from fedsim.grids.passing import PassingGrid
from fedsim.secure.calls import SECURE_SUM
from fedsim.secure.client import LAST_ROUND, MINIMUM_COHORT, THRESHOLD, WEIGHTED_BY
from fedsim.trusted.masking.enrolment import enrolment_questions, public_key, registration
from fedsim.trusted.masking.settings import Masked

_GONE = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE}
"""Errors that Flower itself puts in the place of a reply that never came."""

_HOW = "ClientApp(mods=[secure_mod]) and answer_secure_aggregation(app), both from fedsim"

_PATIENCE = 60
"""Times that a strategy may ask for the nodes in one round. One that waits for more asks every second."""

Send = Callable[[Iterable[Message]], Iterable[Message]]
"""Sends messages, and waits for the replies no longer than it should."""


@dataclass(frozen=True)
class Fleet:
    """`numbers` maps enrolled nodes to their numbers; `last_round` is the highest that any client knows."""

    numbers: Mapping[int, int]
    last_round: int

    @classmethod
    def enrol(cls, grid: Grid, send: Send, masked: Masked, weighted_by: str | None, wanted: int) -> Fleet:
        """Let all connected nodes register their keys, once there are `wanted`.

        A `UserError` if a client is not equipped for secure sums, or has other settings than the server.
        """
        nodes = connected(grid, wanted)
        if len(nodes) < wanted:
            raise UserError(
                f"SecureAggregation: {len(nodes)} clients are connected, no more for {CONNECT_LIMIT_S} s; "
                f"expected {wanted} before the training begins"
            )
        keys: dict[int, bytes] = {}
        last_round = 0
        for reply in sorted(send(enrolment_questions(nodes)), key=lambda reply: reply.metadata.src_node_id):
            node = reply.metadata.src_node_id
            if reply.has_error() and reply.error.code in _GONE:
                continue
            settings = _settings_of(reply, node)
            _check_same(settings, node, masked, weighted_by)
            keys[node] = public_key(reply)
            last_round = max(last_round, int(settings[LAST_ROUND]))  # type: ignore[arg-type]
        registered, refusals = _registered(send, keys)
        for node in nodes:
            if node not in registered:
                log(WARNING, "SecureAggregation: client %s does not answer, and is left out", node)
        if len(registered) < masked.minimum_cohort:
            reasons = f": {refusals[0]}" if refusals else ""
            raise UserError(
                f"SecureAggregation: {len(registered)} of {len(nodes)} clients have enrolled, "
                f"expected at least {masked.minimum_cohort}{reasons}"
            )
        log(INFO, "SecureAggregation: %s clients have enrolled", len(registered))
        numbers = {node: number for number, node in enumerate(keys) if node in registered}
        return cls(numbers, last_round)


class EnrolledGrid(PassingGrid):
    """The grid that a strategy draws a sample from: nodes that have enrolled, and are still connected."""

    def __init__(self, grid: Grid, numbers: Mapping[int, int]) -> None:
        super().__init__(grid)
        self._numbers, self._asked = numbers, 0

    def get_node_ids(self) -> Iterable[int]:
        """The nodes; a `UserError` if a strategy keeps waiting for more."""
        nodes = [node for node in super().get_node_ids() if node in self._numbers]
        self._asked += 1
        if self._asked > _PATIENCE:
            raise UserError(
                f"SecureAggregation: the strategy waits for more clients than the {len(nodes)} that have "
                "enrolled and are still connected; clients that connect later cannot join"
            )
        return nodes

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The same nodes, with all that is known of them."""
        enrolled = set(self.get_node_ids())
        return [node for node in super().get_nodes() if node.node_id in enrolled]


def in_one_line(reason: str | None) -> str:
    """The reason of an error, without line breaks and not longer than a line."""
    return " ".join((reason or "no reason given").split())[:200]


def _settings_of(reply: Message, node: int) -> ConfigRecord:
    """The settings that a client gave at enrolment."""
    if reply.has_error():
        raise UserError(
            f"SecureAggregation: client {node} does not answer the protocol, its app needs {_HOW}; "
            f"it said: {in_one_line(reply.error.reason)}"
        )
    settings = config_in(reply.content, SECURE_SUM)
    if not settings:
        raise UserError(f"SecureAggregation: client {node} lacks the mod, its app needs {_HOW}")
    return settings


def _check_same(settings: ConfigRecord, node: int, masked: Masked, weighted_by: str | None) -> None:
    """Both sides have to count on the same threshold, and a client has to allow the weights."""
    for name, own in ((THRESHOLD, masked.threshold), (MINIMUM_COHORT, masked.minimum_cohort)):
        if settings[name] != own:
            argument = name.replace("-", "_")
            raise UserError(
                f"SecureAggregation({argument}={own!r}): client {node} has {argument}={settings[name]!r}, "
                "expected the same on both sides"
            )
    if weighted_by is not None and settings[WEIGHTED_BY] != weighted_by:
        raise UserError(
            f"SecureAggregation(weighted_by={weighted_by!r}): client {node} allows "
            f"{settings[WEIGHTED_BY] or None!r}, give its SecureMod the same weighted_by"
        )


def _registered(send: Send, keys: Mapping[int, bytes]) -> tuple[set[int], Sequence[str]]:
    """The nodes that took the registry, and why others did not."""
    registered, refusals = set(), []
    for reply in send(registration(list(keys.values()), list(keys))):
        if reply.has_error():
            refusals.append(in_one_line(reply.error.reason))
        else:
            registered.add(reply.metadata.src_node_id)
    return registered, refusals
