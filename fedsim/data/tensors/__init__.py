"""Tensors of the user's own, from files or functions."""
