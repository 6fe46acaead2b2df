"""Many copies of one small network, trained side by side.

A step of a small network spends most of its time on starting operations, and convolutions between a handful
of channels leave a processor idle. Here the copies are stacked: every operation works on all of them, a
linear layer is a batched matrix product, and a convolution with its pooling is a few compiled loops.
Gradients are computed by hand, and each parameter takes its step as soon as its gradient is known; autograd,
with memory for whole gradients, would take about twice the time.
"""

from fedsim.training.stacked.input_layer import Shards
from fedsim.training.stacked.parameter import Sgd
from fedsim.training.stacked.stack import Stack
from fedsim.training.stacked.stages import Stage, are_few, stages_of

__all__ = ["Sgd", "Shards", "Stack", "Stage", "are_few", "stages_of"]
