"""A server that dies during its training."""

from flwr.serverapp.strategy import FedAvg


class Dying(FedAvg):
    """It dies before round `last + 1`."""

    def __init__(self, last, **settings):
        super().__init__(**settings)
        self.last = last

    def configure_train(self, server_round, arrays, config, grid):
        if server_round > self.last:
            raise KeyboardInterrupt
        return super().configure_train(server_round, arrays, config, grid)
