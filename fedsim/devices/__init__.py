"""The simulated devices: their Flower app, and who computes their updates."""
