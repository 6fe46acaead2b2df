"""Run a scenario, read its figures, and attack it again with another solver."""

import fedsim

SMALL = {"federation.clients": 6, "federation.rounds": 24, "attack.inference": []}

run = fedsim.run("quickstart", out="runs/quickstart", overrides={"seed": 8, **SMALL}, force=True)
found = run.result.disaggregation
print(f"columns exactly right: {found.exact_fraction:.2f}")
print(f"a guess from the counts: {found.baselines.counts_only_exact_fraction:.2f}")

again = fedsim.attack(run, {"attack.solver": "highs"}, out="runs/quickstart-highs", force=True)
print(f"with {again.recovery.solver}: {again.result.disaggregation.exact_fraction:.2f}")
