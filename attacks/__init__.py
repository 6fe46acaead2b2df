"""The adversary: what a curious server observes, and what it makes of it.

Everything here works on an `AttackerView`. Nothing here can import the truth: a linter contract in
`pyproject.toml` forbids it, and a test shows that changing the truth changes no recovery.
"""
