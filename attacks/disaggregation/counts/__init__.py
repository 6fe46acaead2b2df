"""What the published counts say about columns."""
