"""Updates as clients make them, with all that the server knows about how."""

import numpy as np
import torch

from attacks.inference.evidence import Evidence
from attacks.inference.knowledge import Auxiliary, Knowledge
from fedsim.data import Synthetic
from fedsim.training.local_training import FlatModel, as_input, initial_model, local_update

DATA = Synthetic(train_images=400, test_images=1).load(0)
NOTHING = Auxiliary(DATA.test_images[:0], DATA.test_labels[:0], {})


def knowledge_of(model, work, auxiliary=NOTHING):
    return Knowledge(model, DATA.image_shape, DATA.class_names, work, auxiliary)


def start_of(model):
    return initial_model(model, DATA.image_shape, len(DATA.class_names), np.random.default_rng(1))


def update_on(model, work, images, labels, seed=0):
    """The update of a client that owns these images, and the parameters that it started from."""
    flat = FlatModel(start_of(model))
    start = flat.read()
    inputs, targets = as_input(images), torch.from_numpy(labels)
    rng = np.random.default_rng(seed)
    return local_update(flat, start, images=inputs, labels=targets, settings=work, rng=rng), start


def evidence_on(model, work, positions, clients=1):
    """Evidence of one row about a client that owns the images at these positions of `DATA`."""
    update, start = update_on(model, work, DATA.train_images[positions], DATA.train_labels[positions])
    return Evidence(update[None], start[None], clients)
