"""Gradient inversion: the images that an update was trained on, from the update."""
