"""Compare two changes of a scenario with an evaluation: what each stops, and what it costs."""

from pathlib import Path

import fedsim

EVALUATION = """
title = "Two changes"
seeds = 1
[base]
title = "Small"
data = { name = "synthetic", train_images = 200, test_images = 50 }
model = { name = "mlp", hidden = 8 }
clients = { dataset_size = 16, batch_size = 16 }
federation = { clients = 6, rounds = 24, participation = { name = "bernoulli", rate = 0.3 } }
analytics = { window = 4 }
[[defences]]
name = "half of the counts"
set.analytics.release = [{ name = "drop", fraction = 0.5 }]
[[defences]]
name = "rarer counts"
set.analytics.window = 12
"""

if __name__ == "__main__":  # an evaluation may start worker processes
    Path("evaluation.toml").write_text(EVALUATION, encoding="utf-8")
    found = fedsim.evaluate("evaluation.toml", out="runs/evaluation", workers=1)
    for name, verdict in found.verdicts.items():
        print(f"{name}: {verdict}")
    print(f"rows for pandas: {len(found.to_pandas())}")
