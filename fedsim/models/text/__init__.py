"""Networks that read tokens."""
