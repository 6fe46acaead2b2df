"""Runs side by side: the settings that differ, and the figures."""
