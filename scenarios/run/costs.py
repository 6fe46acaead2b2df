"""What a defence costs: the error of the published counts, the fairness of cohorts, and messages.

Together with the test accuracy, these are the figures to compare leakage with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analytics.report import ParticipationReport
from fedsim.trusted.truth import Truth
from scenarios.run.sections import Analytics, AnonymitySet, Cohorts, Messages, RoundsPerClient, Statement
from scenarios.run.world import World


def score_counts(counts: ParticipationReport, release: Sequence[Statement], truth: Truth) -> Analytics:
    """The published counts compared with the sums, and what the `release` policies state."""
    rounds, clients = truth.participation.shape
    known = ~np.isnan(counts.count)
    client = counts.clients[counts.client[known]].astype(np.int64)
    start, stop = counts.start[known], counts.stop[known]
    running = np.zeros((rounds + 1, clients), dtype=np.int64)
    np.cumsum(truth.participation, axis=0, dtype=np.int64, out=running[1:])
    true = running[stop, client] - running[start, client]
    covered = np.zeros((rounds + 1, clients), dtype=np.int64)
    np.add.at(covered, (start, client), 1)
    np.add.at(covered, (stop, client), -1)
    some = len(client) > 0
    return Analytics(
        release=tuple(release),
        count_error=float(np.abs(counts.count[known] - true).mean()) if some else None,
        missing_fraction=float((np.cumsum(covered, axis=0)[:rounds] == 0).mean()),
        mean_window=float((stop - start).mean()) if some else None,
    )


def score_cohorts(truth: Truth) -> Cohorts:
    """Who took part how often, and among how many a client hides."""
    rounds_of = truth.participation.sum(axis=0, dtype=np.int64)
    _, group, size = np.unique(truth.participation, axis=1, return_inverse=True, return_counts=True)
    hiding = size[group.reshape(-1)][rounds_of > 0]
    squares = float((rounds_of**2).sum())
    return Cohorts(
        cohort_size=float(truth.participation.sum(axis=1, dtype=np.int64).mean()),
        rounds_per_client=RoundsPerClient(
            least=int(rounds_of.min()), mean=float(rounds_of.mean()), most=int(rounds_of.max())
        ),
        fairness=float(rounds_of.sum()) ** 2 / (len(rounds_of) * squares) if squares else 1.0,
        anonymity_set=AnonymitySet(
            smallest=int(hiding.min()) if len(hiding) else 0,
            mean=float(hiding.mean()) if len(hiding) else 0.0,
        ),
    )


def messages_per_round(world: World, answers: ParticipationReport) -> Messages:
    """Messages to devices by purpose, mean over rounds."""
    invited = float(world.schedule.sum(axis=1).mean())
    return Messages(
        training=invited,
        masking=invited * world.scenario.federation.aggregation.further_messages,
        telemetry=len(answers.count) / world.scenario.federation.rounds,
    )
