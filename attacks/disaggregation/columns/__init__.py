"""Sets of columns: enumerate them, take them apart, and attribute them to clients."""
