"""The paper's tables and figures: what they were, what ours are, and how to make ours again."""
