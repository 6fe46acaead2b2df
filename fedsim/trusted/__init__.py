"""Everything that knows single clients: the wall behind which secure aggregation keeps its promise.

Every module that may see the truth lives in this folder. `attacks` and `analytics` may not import it,
directly or through another module; `pyproject.toml` says so in one line, and a linter checks it.
"""
