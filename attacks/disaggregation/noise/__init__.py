"""Columns from noisy sums and from models that move."""
