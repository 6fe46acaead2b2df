"""Updates as clients make them, with all that the server knows about how."""

import numpy as np

from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Auxiliary, Knowledge
from fedsim.data import Synthetic
from fedsim.training.local_training import FlatModel, initial_model, local_update

DATA = Synthetic(train_images=400, test_images=1).load(0)
NOTHING = Auxiliary(DATA.test.inputs[:0], DATA.test.targets[:0], {})


def knowledge_of(model, work, auxiliary=NOTHING):
    return Knowledge(model, DATA.task, work, auxiliary)


def start_of(model):
    return initial_model(model, DATA.task, np.random.default_rng(1))


def update_on(model, work, images, labels, seed=0):
    """The update of a client that owns these images, and the parameters that it started from."""
    flat = FlatModel(start_of(model))
    start = flat.read()
    inputs, targets = DATA.task.as_inputs(images), DATA.task.as_targets(labels)
    rng = np.random.default_rng(seed)
    update = local_update(
        flat, start, inputs=inputs, targets=targets, loss=DATA.task.loss, settings=work, rng=rng
    )
    return update, start


def evidence_on(model, work, positions, clients=1):
    """Evidence of one row about a client that owns the images at these positions of `DATA`."""
    update, start = update_on(model, work, DATA.train.inputs[positions], DATA.train.targets[positions])
    return Evidence(update[None], start[None], clients)
