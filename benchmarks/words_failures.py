"""Columns from zero rows if devices fail, beside what the counts name from the true columns.

python -m benchmarks.words_failures RUN… [--rounds 100 60]
python -m benchmarks.words_failures TEXTS --seeds 901 902 [--absent .2] [--lost .1] [--known 1] [--rounds 60]

The first form attacks the first rounds of trained runs; the second plants cohorts, and nothing is trained.
"Told" shuffles the true columns and lets the counts name them: whatever finds the columns, it names no more.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytics.report import ParticipationReport, windowed_counts
from attacks.disaggregation import DisaggregationProblem
from attacks.disaggregation.proof.settling import LIKELY_FROM
from attacks.disaggregation.solvers.sparse import columns_from
from attacks.disaggregation.sparse.count_model import CountModel
from attacks.disaggregation.sparse.naming import Fits
from attacks.disaggregation.sparse.traces import Traces, find_traces
from attacks.reconciliation import posed_problem
from fedsim.data.text.texts import Texts
from fedsim.records import Transcript
from fedsim.tasks.text.next_word import NO_TARGET

SHUFFLES = 5
RATE, WINDOW, THRESHOLD, LEAST_COHORT = 0.1, 10, 0.51, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, nargs="+", default=[100])
    parser.add_argument("--seeds", type=int, nargs="*", default=[])
    parser.add_argument("--absent", type=float, default=0.0)
    parser.add_argument("--lost", type=float, default=0.0)
    parser.add_argument("--known", type=float, default=1.0)
    options = parser.parse_args()
    for rounds in options.rounds:
        if options.seeds:
            typed = typed_words(options.path[0])
            for seed in options.seeds:
                problem, moved, P = planted(seed, typed, rounds, options)
                print(f"seed {seed}, {rounds} rounds: {measured(problem, Traces.of(moved), P)}", flush=True)
            continue
        for path in options.path:
            problem, P = recorded(path, rounds)
            traces = find_traces(problem)
            assert traces is not None, "rows of the sums stand still now and then"
            print(f"{path}, {rounds} rounds: {measured(problem, traces, P)}", flush=True)


def measured(problem: DisaggregationProblem, traces: Traces, P: NDArray[np.bool_]) -> str:
    """What the attack finds of the true columns P (rounds, K), and what the counts name if these are told."""
    counts = CountModel(problem.windows, problem.lost, np.asarray(problem.cohort_sizes))
    found = columns_from(traces, counts)
    has = found.column >= 0
    columns = np.zeros_like(P)
    columns[:, has] = found.columns[found.column[has]].T
    right = has & (columns == P).all(axis=0)
    likely, sure = found.confidence >= LIKELY_FROM, found.confidence > 0.95
    named = np.mean([told(counts, P, np.random.default_rng(shuffle)) for shuffle in range(SHUFFLES)])
    void = int((np.asarray(problem.cohort_sizes) == 0).sum())
    return (
        f"void {void}, columns exact {right.mean():.3f}, told {named:.3f}, likely {likely.sum()} (expected "
        f"right {found.confidence[likely].sum():.1f}, right {right[likely].sum()}), above .95 {sure.sum()} "
        f"({(sure & ~right).sum()} wrong)"
    )


def told(counts: CountModel, P: NDArray[np.bool_], rng: np.random.Generator) -> float:
    """The share of clients that get their own column if the counts name the true ones."""
    clients = P.shape[1]
    columns = P.T[rng.permutation(clients)]
    fits = Fits.of(counts, columns)
    chance = fits.marginals(unknown=np.full(clients, 1e-12), doubt=np.full(clients, 1e-9))
    column = fits.named(chance)
    return float(((column >= 0) & (columns[column] == P.T).all(axis=1)).mean())


def recorded(path: Path, rounds: int) -> tuple[DisaggregationProblem, NDArray[np.bool_]]:
    """The first rounds of a run: the problem that its records pose, and the truth."""
    transcript = Transcript.load(path / "transcript")
    report = ParticipationReport.read_csv(path / "counts.csv", rounds=len(transcript.aggregates))
    early = report.stop <= rounds
    counts = ParticipationReport(
        report.clients, report.client[early], report.start[early], report.stop[early], report.count[early]
    )
    problem = posed_problem(
        transcript.aggregates[:rounds],
        counts,
        cohort_sizes=transcript.cohort_sizes[:rounds],
        layer_shapes=transcript.layer_shapes,
    )
    return problem, np.load(path / "truth" / "participation.npy").astype(np.bool_)[:rounds]


def typed_words(path: Path) -> NDArray[np.bool_]:
    """(people, words) who typed what in a file of texts."""
    data = Texts(path=path).load(0)
    typed = np.zeros((int(data.train.owners.max()) + 1, data.task.outputs), dtype=np.bool_)
    read = data.train.targets != NO_TARGET
    typed[np.repeat(data.train.owners, read.sum(axis=1)), data.train.inputs[read]] = True
    return typed


def planted(
    seed: int, typed: NDArray[np.bool_], rounds: int, options: argparse.Namespace
) -> tuple[DisaggregationProblem, NDArray[np.bool_], NDArray[np.bool_]]:
    """A problem without sums, which rows (words, rounds) moved, and who was in the sums (rounds, K).

    A round is void, as masked sums have it, if too few of those who were invited deliver.
    """
    rng = np.random.default_rng([seed, 99])
    invited = rng.random((rounds, len(typed))) < RATE
    fate = rng.random(invited.shape)
    counted = invited & (fate >= options.absent)
    P = invited & (fate >= options.absent + options.lost)
    if options.absent + options.lost > 0:
        P[P.sum(axis=1) < np.maximum(np.ceil(THRESHOLD * invited.sum(axis=1)), LEAST_COHORT)] = False
    report = windowed_counts(counted, WINDOW)
    known = rng.random(len(report.count)) < options.known
    counts = ParticipationReport(
        report.clients, report.client[known], report.start[known], report.stop[known], report.count[known]
    )
    moved = typed.T.astype(np.float32) @ P.T.astype(np.float32) > 0
    nothing = np.zeros((rounds, 1), dtype=np.float32)
    return posed_problem(nothing, counts, cohort_sizes=P.sum(axis=1)), moved, P


if __name__ == "__main__":
    main()
