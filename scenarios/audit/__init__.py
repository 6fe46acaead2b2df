"""Audits: attack the logs of a real system, without a simulator and without a truth."""
