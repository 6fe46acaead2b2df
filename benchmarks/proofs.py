"""How many proofs are false, if the assumptions of proofs fail? How many are kept, if they hold?

    python -m benchmarks.proofs [--problems 2000] [--first-seed 0] [--solvers projection highs]
    python -m benchmarks.proofs --honest [--problems 5] [--first-seed 0]

The first command attacks small planted problems that break one or two assumptions (the families of
tests/helpers/adversarial.py). It prints the number of columns by outcome: once by weakness, once by filler.
Every problem stands in one row of either table. `from the sums` are those proofs that the counts alone do not
give. Solvers take turns. False proofs are also printed as they are found.

The second command attacks problems of the sizes of the paper's tables, in which every assumption holds.
`right` and `proved` are shares of the columns.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict

import numpy as np

from attacks.disaggregation import disaggregate
from attacks.disaggregation.recovery import Outcome
from attacks.disaggregation.solvers import Solver
from scenarios.planted import Planted
from tests.helpers.adversarial import FILLERS, SOLVERS, WEAKNESSES, Adversarial, problems
from tests.helpers.planted import right

FROM_SUMS, FALSE = "from the sums", "false proofs"
HEADINGS = (
    "columns", Outcome.PROVED, FROM_SUMS, FALSE, Outcome.CONSISTENT, Outcome.LIKELY, Outcome.UNRESOLVED,
)  # fmt: skip
HONEST = (
    {"clients": 24, "rounds": 96, "rate": 0.2, "window": 8},
    {"clients": 64, "rounds": 96, "rate": 0.05},
    {"clients": 128, "rounds": 256},
    {"clients": 128, "rounds": 256, "rate": 0.2},
    {"clients": 128, "rounds": 256, "window": 40},
    {"clients": 128, "rounds": 256, "known": 0.5},
    {"clients": 128, "rounds": 512},
    {"clients": 256, "rounds": 512},
    {"clients": 512, "rounds": 1024},
)
"""The rate is 0.1 and windows have 10 rounds, unless stated."""


def tally(case: Adversarial, solver: Solver, seed: int) -> Counter[str]:
    """The outcomes of a problem's columns."""
    recovery = disaggregate(case.problem, solver, rng=np.random.default_rng(seed))
    wrong = ~right(recovery.participation, case.participation)
    proved = recovery.outcome == Outcome.PROVED
    by_counts = ~np.isnan(case.problem.windows.known()).any(axis=1)
    found = Counter(map(str, recovery.outcome))
    found["columns"] = len(recovery.outcome)
    found[FROM_SUMS] = int((proved & ~by_counts).sum())
    found[FALSE] = int((proved & wrong).sum())
    return found


def part(case: Adversarial, names: tuple[str, ...]) -> str:
    """The weakness or the filler of a problem."""
    return next((name for name in case.family if name in names), "none")


def adversarial_tables(number: int, first_seed: int, names: list[str]) -> None:
    by_weakness: defaultdict[str, Counter[str]] = defaultdict(Counter)
    by_filler: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for i, case in enumerate(problems(number, first_seed)):
        solver = names[i % len(names)]
        found = tally(case, SOLVERS[solver], i)
        by_weakness[part(case, WEAKNESSES)] += found
        by_filler[part(case, FILLERS)] += found
        if found[FALSE]:
            print(f"false: {'+'.join(case.family)}, problem {i}, {solver}: {found[FALSE]}", flush=True)
    for title, rows in (("weakness", by_weakness), ("filler", by_filler)):
        print(f"\n| {title} | {' | '.join(HEADINGS)} |\n|---|{'---|' * len(HEADINGS)}")
        total = sum(rows.values(), Counter[str]())
        for name, found in [*rows.items(), ("all", total)]:
            print(f"| {name} | {' | '.join(f'{found[heading]:,}' for heading in HEADINGS)} |")


def honest_table(number: int, first_seed: int) -> None:
    print("| clients | rounds | rate | window | counts known | right | proved | false proofs |")
    print(f"|{'---|' * 8}")
    for settings in HONEST:
        outcome, correct = [], []
        for seed in range(first_seed, first_seed + number):
            planted = Planted.model_validate(settings | {"seed": seed})
            truth, recovery = planted.solve()
            outcome.append(recovery.outcome)
            correct.append(right(recovery.participation, truth.participation))
        proved, good = np.concatenate(outcome) == Outcome.PROVED, np.concatenate(correct)
        print(
            f"| {planted.clients} | {planted.rounds} | {planted.rate:g} | {planted.window} |"
            f" {planted.known:g} | {good.mean():.3f} | {proved.mean():.3f} | {int((proved & ~good).sum())} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--problems", type=int, help="in all, or of each size if honest")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    options = parser.parse_args()
    if options.honest:
        honest_table(options.problems or 5, options.first_seed)
    else:
        adversarial_tables(options.problems or 2000, options.first_seed, options.solvers)


if __name__ == "__main__":
    main()
