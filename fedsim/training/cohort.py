"""Several clients' copies of any network, trained at once on any device with `torch.func.vmap`.

On a GPU a step of a small network costs little more for thirty clients than for one. On a CPU the loop over
clients is quicker, and `fedsim.training.stacked` quicker still for the networks that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedsim.models.normalisation import batch_counters, running_statistics
from fedsim.training.descent import Descent
from fedsim.training.local_work import LocalWork

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Cohort:
    """Trains copies of a network that draws no random numbers; nothing is copied to the CPU on the way.

    A model is a vector of length dim as in `FlatModel`: parameters, then running statistics.
    """

    def __init__(self, module: nn.Module, loss: Loss, device: torch.device) -> None:
        parameters = dict(module.named_parameters())
        # Names are looked up before the module moves: its tensors may be others afterwards.
        places = {id(tensor): name for name, tensor in module.named_buffers()}
        statistics = {places[id(tensor)]: tensor for tensor in running_statistics(module)}
        self._counters = {places[id(tensor)]: tensor.dtype for tensor in batch_counters(module)}
        self._shapes = {name: tensor.shape for name, tensor in {**parameters, **statistics}.items()}
        self._trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
        self._module, self._loss = module.to(device).train(), loss
        self._gradients = vmap(grad(self._mean_loss), in_dims=(0, 0, 0, 0))

    def updates(
        self,
        start: torch.Tensor,
        *,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        batches: Sequence[torch.Tensor],
        settings: LocalWork,
    ) -> torch.Tensor:
        """(clients, dim) what `local_update` computes for each client, up to rounding.

        `start` (dim,); `inputs` and `targets` (clients, examples, …); every one of the `batches` (clients,
        length) holds positions among the examples. All on the same device.
        """
        clients = len(inputs)
        tensors = self._copies(start, clients)
        trained = {name: tensors[name] for name in self._trained}
        fixed = {name: tensor for name, tensor in tensors.items() if name not in trained}
        for name, dtype in self._counters.items():
            fixed[name] = torch.zeros(clients, dtype=dtype, device=start.device)
        descent = Descent(list(trained.values()), settings, clients=clients)
        rows = torch.arange(clients, device=inputs.device)[:, None]
        for batch in batches:
            gradients = self._gradients(trained, fixed, inputs[rows, batch], targets[rows, batch])
            descent.step([gradients[name] for name in self._trained])
        ends = torch.cat([tensors[name].reshape(clients, -1) for name in self._shapes], dim=1)
        return ends - start

    def _copies(self, start: torch.Tensor, clients: int) -> dict[str, torch.Tensor]:
        """Name → (clients, *shape): the tensors of the model `start`, once per client."""
        pieces = torch.split(start, [shape.numel() for shape in self._shapes.values()])
        return {
            name: piece.view(shape).expand(clients, *shape).clone()
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }

    def _mean_loss(
        self,
        trained: dict[str, torch.Tensor],
        fixed: dict[str, torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
    ) -> torch.Tensor:
        """One client's loss on a batch; layers that normalise by batch change their statistics in `fixed`."""
        return self._loss(functional_call(self._module, {**trained, **fixed}, (inputs,)), targets)
