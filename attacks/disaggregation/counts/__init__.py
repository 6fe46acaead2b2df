"""Constraints and evidence that published counts and cohort sizes give about columns."""
