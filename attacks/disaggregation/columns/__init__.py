"""Sets of columns: enumerate them, take them apart, and say whose they are."""
