"""Tables: the user's own, and scikit-learn's."""
