"""The sources on real images, where FEDSIM_DATA names a folder with samples of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedsim.data import Cifar10, Cifar100, Dirichlet, Lfw
from tests.helpers.copies import class_names


def sample(name):
    folder = os.environ.get("FEDSIM_DATA")
    if folder is None:
        pytest.skip("FEDSIM_DATA is not set: no real images to test on")
    if not (Path(folder) / name).is_file():
        pytest.skip(f"FEDSIM_DATA={folder} holds no {name}")
    return Path(folder) / name


def test_cifar10():
    data = Cifar10(path=sample("cifar10_sample.npz")).load(0)
    assert data.task.input_shape == (3, 32, 32)
    assert (np.bincount(data.train.targets) > 0.08 * len(data.train.targets)).all()


def test_cifar100():
    data = Cifar100(path=sample("cifar100_sample.npz")).load(0)
    assert "aquarium_fish" in class_names(data)
    assert len(data.test.targets) == round(0.2 * (len(data.train.targets) + len(data.test.targets)))


def test_lfw():
    data = Lfw(path=sample("lfw_sample.npz")).load(0)
    faces = len(data.train.targets) + len(data.test.targets)
    assert data.task.input_shape == (3, 62, 47)
    assert abs(len(data.test.targets) / faces - 0.2) < 0.05
    assert 0.5 < data.train.targets.mean() < 0.9
    assert {"Male", "Asian", "Black", "Eyeglasses"} <= set(data.train.attributes)


def test_label_skew_of_real_labels():
    train = Cifar10(path=sample("cifar10_sample.npz")).load(0).train
    labels = train.targets
    owned = Dirichlet(alpha=0.1).deal(train, 100, 64, np.random.default_rng(0))
    favourite = [np.bincount(labels[mine], minlength=10).max() / 64 for mine in owned]
    assert np.mean(favourite) > 0.5
