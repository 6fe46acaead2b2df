"""The server: what it does with the one sum per round that reaches it."""
