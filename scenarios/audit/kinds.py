"""What the rows of a log can be."""

from typing import Literal

Rows = Literal["sums", "means", "weighted-means"]
"""A weighted sum is a sum: its updates are the clients' weighted ones."""
