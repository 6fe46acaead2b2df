"""Reproduction of the paper's tables and figures: its values, ours, and how to make ours again."""
