"""What a network is trained for: how examples become inputs, the loss, and the figure of merit."""
