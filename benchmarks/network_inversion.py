"""What does a network change for inversion? Images guessed from one client's update, per network.

    python -m benchmarks.network_inversion DATA [--networks lenet vit …] [--seeds 11 12 13] [--out TABLE.csv]

DATA is a copy of CIFAR-10 (torchvision's folder, or an .npz file). A client trains on two images, one step,
from a network that has learned nothing. The attacker has its exact update and the labels: disaggregation is
perfect, and what is left to the network is seen. `geiping` guesses the images. Figures are means over the
images, in dB of PSNR after the best assignment, beside a guess that is grey everywhere and one that is the
mean of other images.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np
import torch

from attacks.inference.evidence import Evidence
from attacks.inference.inversion.geiping import Geiping
from attacks.inference.inversion.inversion import as_pixels
from attacks.inference.knowledge import Auxiliary, Knowledge
from fedsim.core.seeds import Stage, stream
from fedsim.data import Cifar10
from fedsim.models import Lenet, Model, Resnet, Vit
from fedsim.training.local_training import FlatModel, initial_model, local_update
from fedsim.training.local_work import LocalWork
from scenarios.run.inference.similarity import match, psnr_db

IMAGES = 2
NETWORKS: dict[str, Model] = {
    "lenet": Lenet(),
    "resnet-group": Resnet(),
    "resnet-layer": Resnet(norm="layer"),
    "resnet-batch": Resnet(norm="batch"),
    "resnet-batch-frozen": Resnet(norm="batch", statistics="frozen"),
    "resnet-dropout": Resnet(dropout=0.3),
    "vit": Vit(width=32, layers=2, hidden=64),
}
ATTACK = Geiping(iterations=400, total_variation=0.1, labels="known")
COLUMNS = ("network", "seed", "grey", "mean image", "guess", "cpu_s")


def measured(network: str, seed: int, data: Path) -> dict[str, str | int]:
    """One client of one network: the PSNR of the guessed images, and of guesses without an attack."""
    torch.set_num_threads(1)
    began = time.process_time()
    source = Cifar10(path=data).load(seed)
    task, work = source.task, LocalWork(dataset_size=IMAGES, batch_size=IMAGES, lr=0.01)
    rng = stream(seed, Stage.PARTITION)
    mine, *others = np.split(rng.permutation(len(source.train.targets))[: 101 * IMAGES], [IMAGES])
    inputs, targets = task.as_inputs(source.train.inputs[mine]), task.as_targets(source.train.targets[mine])
    model = FlatModel(initial_model(NETWORKS[network], task, stream(seed, Stage.MODEL)))
    start = model.read()
    torch.manual_seed(seed)
    update = local_update(
        model, start, inputs=inputs, targets=targets, loss=task.loss, settings=work, rng=rng
    )
    histogram = np.bincount(source.train.targets[mine], minlength=task.outputs)
    shares = np.asarray(histogram / IMAGES, dtype=np.float32)
    nothing = Auxiliary(source.test.inputs[:0], source.test.targets[:0], {})
    knowledge = Knowledge(NETWORKS[network], task, work, nothing)
    evidence = Evidence(update[None], start[None], 1, shares[None])
    guesses = ATTACK.infer(evidence, knowledge, rng=np.random.default_rng(seed)).values[0]
    images = as_pixels(inputs.numpy())
    mean = as_pixels(task.as_inputs(source.train.inputs[others[0]]).numpy()).mean(axis=0)
    candidates = {
        "grey": np.full_like(images, 0.5),
        "mean image": np.broadcast_to(mean, images.shape).astype(np.float32),
        "guess": match(guesses, images),
    }
    figures = {name: f"{psnr_db(each, images).mean():.2f}" for name, each in candidates.items()}
    return {"network": network, "seed": seed, **figures, "cpu_s": f"{time.process_time() - began:.1f}"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with options.out.open("a", encoding="utf-8") if options.out else sys.stdout as file:
        lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        lines.writeheader()
        for seed in options.seeds:
            for network in options.networks:
                lines.writerow(measured(network, seed, options.data))
                file.flush()


if __name__ == "__main__":
    main()
