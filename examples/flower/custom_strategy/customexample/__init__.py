"""A Flower app with a tap."""
