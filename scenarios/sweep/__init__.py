"""Sweeps: every combination of some values, each an ordinary run, and what came of them side by side."""
