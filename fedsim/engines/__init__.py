"""Engines: ways to run the same `ServerApp` and `ClientApp`."""
