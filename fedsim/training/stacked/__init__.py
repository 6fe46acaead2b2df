"""Many copies of one small network, trained side by side in one program.

A step of a small network is mostly the starting of operations, and convolutions between a handful of
channels leave a processor idle. Here the copies are stacked: every operation works for all of them, a linear
layer is a batched matrix product, and a convolution with its pooling is a few compiled loops. Gradients are
written out by hand and followed as they arise; autograd, and memory for whole gradients, would cost as much
again.
"""

from fedsim.training.stacked.parameter import Descent
from fedsim.training.stacked.source import Holdings
from fedsim.training.stacked.stack import Stack
from fedsim.training.stacked.stages import Stage, are_few, stages_of

__all__ = ["Descent", "Holdings", "Stack", "Stage", "are_few", "stages_of"]
