"""Columns from noisy aggregates, and from a server model that moves."""
