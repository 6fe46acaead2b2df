"""The connection between a server and its devices: Flower grids, and the processes behind them."""
