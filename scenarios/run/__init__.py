"""One scenario from its file to its report."""
