"""The server: its strategies, which get one sum per round, and the loop over rounds with its hooks."""
