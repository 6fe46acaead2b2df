"""What a defence costs: how good the published counts are, who gets a turn, and how many messages it takes.

Together with the test accuracy these are the figures beside which leakage is to be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analytics.report import ParticipationReport
from fedsim.trusted.truth import Truth
from scenarios.run.world import World


def score_counts(counts: ParticipationReport, truth: Truth) -> dict[str, Any]:
    """What publishing as it was done is worth to the operator, measured against the sums.

    `count_error`: mean absolute error of the published counts (None if there are none); `missing_fraction`:
    rounds of clients that no count covers; `mean_window`: rounds that a count covers on average.
    """
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
    return {
        "count_error": float(np.abs(counts.count[known] - true).mean()) if some else None,
        "missing_fraction": float((np.cumsum(covered, axis=0)[:rounds] == 0).mean()),
        "mean_window": float((stop - start).mean()) if some else None,
    }


def score_cohorts(truth: Truth) -> dict[str, Any]:
    """Who took part how often, and among how many a client hides.

    `cohort_size`: updates in a sum on average; `rounds_per_client`: least, mean and most; `fairness`: Jain's
    index of these, 1 if all are equal and 1/clients if one has them all; `anonymity_set`: the clients who
    took part in exactly the same rounds as a client, itself included, which no number of sums can tell apart:
    the smallest and the mean over clients that took part.
    """
    rounds_of = truth.participation.sum(axis=0, dtype=np.int64)
    _, group, size = np.unique(truth.participation, axis=1, return_inverse=True, return_counts=True)
    hiding = size[group.reshape(-1)][rounds_of > 0]
    squares = float((rounds_of**2).sum())
    return {
        "cohort_size": float(truth.participation.sum(axis=1, dtype=np.int64).mean()),
        "rounds_per_client": {
            "least": int(rounds_of.min()),
            "mean": float(rounds_of.mean()),
            "most": int(rounds_of.max()),
        },
        "fairness": float(rounds_of.sum()) ** 2 / (len(rounds_of) * squares) if squares else 1.0,
        "anonymity_set": {
            "smallest": int(hiding.min()) if len(hiding) else 0,
            "mean": float(hiding.mean()) if len(hiding) else 0.0,
        },
    }


def messages_per_round(world: World, answers: ParticipationReport) -> dict[str, float]:
    """Messages to devices, by what they are for, mean over rounds: each is answered by one more."""
    invited = float(world.schedule.sum(axis=1).mean())
    return {
        "training": invited,
        "masking": invited * world.scenario.federation.aggregation.further_messages,
        "telemetry": len(answers.count) / world.scenario.federation.rounds,
    }
