"""Tests, in the same folders as the packages they test; `helpers` holds what several of them share."""
