"""Local training: from a model and examples to an update. Knows neither Flower nor clients."""
