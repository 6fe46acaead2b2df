"""Reflections between the column space and the binary columns: the search without noise."""
