"""Texts of people: reading them, cutting them into tokens, and turning them into examples."""
