"""The evidence in every column of a result: without disaggregation, with it, and with a perfect one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attacks.disaggregation import UNKNOWN, Recovery
from attacks.inference.evidence import Evidence
from attacks.view import AttackerView
from fedsim.core.seeds import Stage, stream
from fedsim.devices.client import defended_update, weighted
from fedsim.training.determinism import layers_draw
from fedsim.training.local_training import (
    FlatModel,
    examples_used,
    initial_model,
    local_update,
    path_length,
)
from fedsim.training.remembering import remembering
from fedsim.trusted.truth import Truth
from scenarios.run.server import sent_models
from scenarios.run.world import World

Vectors = NDArray[np.float32]

_ENTRIES_AT_A_TIME = 1 << 13


def recovered_evidence(
    recovery: Recovery,
    sent: Vectors,
    positions: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
) -> Evidence:
    """The recovered updates of the clients at these positions of the recovery.

    Each update is a mean over the rounds of its client, and so is the model that it started from. If updates
    are weighted, the `weights` (rounds,) of the sums tell what each client's update was multiplied by.
    """
    participation = np.where(recovery.participation == UNKNOWN, 0, recovery.participation)
    updates = recovery.updates[positions]
    if weights is not None:
        factors = np.linalg.lstsq(participation.astype(np.float64), np.nan_to_num(weights), rcond=None)[0]
        updates = np.divide(updates, np.maximum(1, factors[positions, None]), dtype=np.float32)
    rows = None if recovery.rows is None else recovery.rows[positions]
    return Evidence(updates, _mean_starts(sent, participation[:, positions]), rows=rows)


def _mean_starts(sent: Vectors, columns: NDArray[np.uint8]) -> Vectors:
    """(K, dim) mean of the models that were sent in the rounds of each of the `columns` (rounds, K)."""
    if sent.strides[0] == 0:
        return np.broadcast_to(sent[0], (columns.shape[1], sent.shape[1]))
    share = columns / np.maximum(1, columns.sum(axis=0))
    means = np.empty((columns.shape[1], sent.shape[1]), dtype=np.float32)
    # Some entries at a time: a product in double precision would copy all models.
    for start in range(0, sent.shape[1], _ENTRIES_AT_A_TIME):
        some = slice(start, start + _ENTRIES_AT_A_TIME)
        means[:, some] = share.T @ sent[:, some]
    return means


@dataclass(frozen=True, eq=False)
class Column:
    """Evidence, and the clients behind each of its rows, which only scoring may know."""

    evidence: Evidence
    members: list[NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class SentModels:
    """The models that the server sent. They are computed when they are first needed, once for all attacks."""

    world: World
    view: AttackerView

    @cached_property
    def by_round(self) -> Vectors:
        """(rounds, dim)."""
        return sent_models(self.world, self.view.transcript)


@dataclass(frozen=True, eq=False)
class Columns:
    """The evidence about the clients under attack, column by column.

    `positions` (n,) are the attacked clients' positions in the recovery. All of them took part in training.
    """

    world: World
    view: AttackerView
    recovery: Recovery
    truth: Truth
    positions: NDArray[np.int64]
    models: SentModels

    @classmethod
    def choose(
        cls,
        world: World,
        view: AttackerView,
        recovery: Recovery,
        truth: Truth,
        targets: int | None,
        *,
        models: SentModels | None = None,
    ) -> Columns:
        """Up to `targets` clients that took part: those with a recovered update first, then others."""
        took_part = truth.participation[:, recovery.clients.astype(np.int64)].any(axis=0)
        candidates = np.flatnonzero(took_part)
        resolved = np.isfinite(recovery.updates[candidates]).all(axis=1)
        order = np.concatenate((candidates[resolved], candidates[~resolved]))
        chosen = np.sort(order[: targets or len(order)])
        return cls(world, view, recovery, truth, chosen, models or SentModels(world, view))

    @property
    def clients(self) -> NDArray[np.int64]:
        """(n,) the attacked clients."""
        return self.recovery.clients[self.positions].astype(np.int64)

    @property
    def resolved(self) -> NDArray[np.bool_]:
        """(n,) whether each has a recovered update; only those are in the `disaggregated` column."""
        return np.asarray(np.isfinite(self.recovery.updates[self.positions]).all(axis=1))

    @property
    def sent(self) -> Vectors:
        """(rounds, dim) the models that the server sent."""
        return self.models.by_round

    def disaggregated(self) -> Column:
        """The recovered updates of the clients that have one."""
        weights = self.view.transcript.weights if self._is_weighted else None
        evidence = recovered_evidence(self.recovery, self.sent, self.positions[self.resolved], weights)
        return Column(evidence, [np.array([k]) for k in self.clients[self.resolved]])

    def oracle(self) -> Column:
        """The true mean updates, as a perfect disaggregation would recover them."""
        starts = _mean_starts(self.sent, self.truth.participation[:, self.clients])
        updates = self.truth.updates[self.clients] / self._factors(self.clients)[:, None]
        evidence = Evidence(updates, starts)
        return Column(evidence, [np.array([k]) for k in self.clients])

    def aggregate(self) -> Column:
        """For every client, the sum of one round that it took part in, with a cohort of about median size."""
        sizes = self.view.transcript.cohort_sizes
        usual = int(np.median(sizes[sizes > 0]))
        took_part = self.truth.participation[:, self.clients] == 1
        distance = np.where(took_part, np.abs(sizes - usual)[:, None], len(self.world.owned) + 1)
        rounds = distance.argmin(axis=0)
        divisors = self.view.transcript.weights if self._is_weighted else sizes
        means = self.view.transcript.aggregates[rounds] / divisors[rounds, None].astype(np.float32)
        members = [np.flatnonzero(self.truth.participation[r]) for r in rounds]
        return Column(Evidence(means, self.sent[rounds], usual), members)

    def cohort(self, size: int, others: NDArray[np.int64]) -> Column:
        """Sums of cohorts of that size: every attacked client with random `others`.

        Defences of updates and of sums apply. Size 1 is one update of one round, as a server without secure
        aggregation gets it: it is no sum, so defences of sums do not apply.
        """
        rng = stream(self.world.scenario.seed, Stage.SCORING, size)
        members = [
            np.array([k, *rng.choice(others[others != k], size - 1, replace=False)]) for k in self.clients
        ]
        means = [self._first_sum(row, rng) / self._factors(row).sum() for row in members]
        starts = np.broadcast_to(self.world.start, (len(members), len(self.world.start)))
        return Column(Evidence(np.array(means, dtype=np.float32), starts, size), members)

    def _first_sum(self, members: NDArray[np.int64], rng: np.random.Generator) -> Vectors:
        total = np.sum([self._first_update(int(k)) for k in members], axis=0)
        if len(members) > 1:
            for defence in self.world.scenario.defences:
                total = defence.on_sum(total, rng)
        return np.asarray(total, dtype=np.float32)

    @property
    def _is_weighted(self) -> bool:
        return self.world.scenario.clients.weighting == "examples"

    def _factors(self, clients: NDArray[np.int64]) -> Vectors:
        """(n,) what each of these clients multiplies its update by."""
        if not self._is_weighted:
            return np.ones(len(clients), dtype=np.float32)
        settings, owned = self.world.scenario.clients, self.world.owned
        return np.array([examples_used(len(owned[k]), settings) for k in clients], dtype=np.float32)

    @cached_property
    def _updates(self) -> dict[int, Vectors]:
        return {}

    def _first_update(self, client: int) -> Vectors:
        """The update that a client makes if it is invited to the first round."""
        if client not in self._updates:
            self._updates[client] = single_update(self.world, client)
        return self._updates[client]


def single_update(world: World, client: int, round_index: int = 0) -> Vectors:
    """The update that a device sends for the first model, with the random numbers of that round."""
    scenario, task, mine = world.scenario, world.data.task, world.data.train[world.owned[client]]
    scratch = FlatModel(initial_model(scenario.model, task, _scratch_rng()))
    settings = scenario.clients.in_round(round_index)

    def trained(start: Vectors, correction: Vectors | None) -> Vectors:
        with layers_draw(scenario.seed, client, round_index):
            return local_update(
                scratch,
                start,
                inputs=task.as_inputs(mine.inputs),
                targets=task.as_targets(mine.targets),
                loss=task.loss,
                settings=settings,
                rng=stream(scenario.seed, Stage.CLIENT, client, round_index),
                correction=correction,
            )

    device = remembering(scratch.module, settings)
    if device is None:
        update = trained(world.start, None)
    else:
        update, _ = device.answer(world.start, None, trained, path=path_length(len(mine), settings))
    examples = examples_used(len(mine), scenario.clients)
    return defended_update(
        weighted(update, scenario.clients.weighting, examples),
        world.start,
        scenario.defences,
        seed=scenario.seed,
        client=client,
        round_index=round_index,
    )


def _scratch_rng() -> np.random.Generator:
    """For parameters that are overwritten before they are used."""
    return np.random.default_rng(0)
