"""Sweeps: run a scenario with every combination of some values."""
