"""Classes or numbers from the rows of a table."""

from fedsim.tasks.tables.rows import RowClassification, RowRegression, TableTask

__all__ = ["RowClassification", "RowRegression", "TableTask"]
