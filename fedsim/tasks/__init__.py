"""Tasks: what a network is trained for. A task turns stored examples into inputs and says loss and metric."""
