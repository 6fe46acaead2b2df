"""Audits: the logs of a real system, attacked without a simulator and without a truth."""
