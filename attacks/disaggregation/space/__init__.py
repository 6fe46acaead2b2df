"""The column space of the sums, and Gram matrices from which it is found."""
