"""How do commands end on damaged input? Prints the number of endings by kind of input and exit status.

    python -m benchmarks.fuzz [--cases 2000] [--seed 0]

The test suite tries 200 cases of the same kinds. Faults are printed as they are found: a traceback, more
than one line, a file that is left behind, a command that takes a minute of processor time, or one that hangs.
"""

from __future__ import annotations

import argparse
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.helpers.fuzzing.damages import cases
from tests.helpers.fuzzing.endings import try_case
from tests.helpers.fuzzing.kind import Kind
from tests.helpers.fuzzing.kinds import templates

FAULT = "fault"


def endings(kind: Kind, number: int, first_seed: int) -> Counter[str]:
    found: Counter[str] = Counter()

    @seed(first_seed)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def search(data: st.DataObject) -> None:
        case = data.draw(cases(kind))
        ending = try_case(case)
        found[FAULT if ending.fault else str(ending.status)] += 1
        if ending.fault:
            print(f"  {kind.name}, {case.file}: {ending.fault}", flush=True)

    search()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kinds = templates()
    columns = ("0", "2", "3", FAULT)
    print(f"| input | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    total: Counter[str] = Counter()
    for kind in kinds:
        found = endings(kind, arguments.cases // len(kinds), arguments.seed)
        total += found
        print(f"| {kind.name} | {' | '.join(str(found[column]) for column in columns)} |", flush=True)
    print(f"| all | {' | '.join(str(total[column]) for column in columns)} |")


if __name__ == "__main__":
    main()
