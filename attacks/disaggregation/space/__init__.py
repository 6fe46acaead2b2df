"""The column space of the aggregates, and the Gram matrices from which it is found."""
