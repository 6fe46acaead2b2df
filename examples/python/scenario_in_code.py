"""Build a scenario in code, change it, and compare two runs in one table."""

import fedsim

scenario = fedsim.load_scenario(
    {
        "title": "Built in code",
        "seed": 1,
        "data": {"name": "synthetic", "train_images": 200, "test_images": 50},
        "model": {"name": "mlp", "hidden": 8},
        "clients": {"dataset_size": 16, "batch_size": 16},
        "federation": {"clients": 6, "rounds": 30, "participation": {"name": "bernoulli", "rate": 0.3}},
        "analytics": {"window": 5},
    }
)
runs = {
    window: fedsim.run(
        scenario, out=f"runs/window-{window}", overrides={"analytics.window": window}, force=True
    )
    for window in (5, 15)
}
for window, run in runs.items():
    found = run.result.disaggregation
    print(f"a count every {window} rounds: {found.ones_found:.2f} of the participations found")
