"""The honest world: data, models, clients, schedule, trusted aggregation, server and engines.

Nothing here knows that an attacker exists, and nothing here imports from the packages above
(`analytics`, `attacks`, `scenarios`).
"""
