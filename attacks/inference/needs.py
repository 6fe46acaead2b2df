"""Layers of a model that an inference attack can need."""

from __future__ import annotations

import math
from enum import Enum

from attacks.inference.knowledge import Knowledge


class LayerNeed(Enum):
    """A layer that the model must have; the value describes it in messages."""

    FIRST = "a model whose first layer is fully connected, with a bias"
    ANY = "a model with a fully connected layer that has a bias"
    LAST = "a model that ends in a linear layer with a bias"
    WORDS = "a model that begins with word vectors"

    def met_by(self, knowledge: Knowledge) -> bool:
        """Whether the server's model has such a layer."""
        shapes = knowledge.layer_shapes
        if self is LayerNeed.ANY:
            from attacks.inference.mean_inputs import Layer

            return Layer.first(knowledge.module) is not None
        if self is LayerNeed.WORDS:
            return len(shapes[0]) == 2 and shapes[0][0] == knowledge.task.outputs
        if len(shapes) < 2:
            return False
        if self is LayerNeed.FIRST:
            return shapes[0][1:] == (math.prod(knowledge.task.input_shape),) and shapes[1] == shapes[0][:1]
        return len(shapes[-2]) == 2 and shapes[-1] == (knowledge.task.outputs,)
