"""Small copies of data sets in the forms that the library reads, with random pixels."""

import hashlib
import pickle

import numpy as np
from PIL import Image

from fedsim.tasks.classification import Classification

ATTRIBUTES = ("Asian", "Smiling", "Wearing Hat")
PEOPLE = {"Ada_Alpha": 3, "Bo_Beta": 1, "Cy_van_Gamma": 2, "Di_Delta": 4, "Ed_Epsilon": 2}


def pixels(n, height=32, width=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def write_arrays(path, arrays, changes):
    """Arrays as an .npz file, with some changed, or left out where the change is None."""
    arrays = arrays | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return arrays


def cifar10_npz(path, **changes):
    labels = np.arange(16, dtype=np.uint8) % 10
    arrays = {
        "x_train": pixels(12),
        "y_train": labels[:12],
        "x_test": pixels(4, seed=1),
        "y_test": labels[12:],
    }
    return write_arrays(path, arrays, changes)


def cifar100_npz(path, **changes):
    arrays = {
        "x_train": pixels(200),
        "y_train": np.repeat(np.arange(100, dtype=np.uint8), 2),
        "class_names": np.array([f"class {i}" for i in range(100)]),
    }
    return write_arrays(path, arrays, changes)


def lfw_npz(path, **changes):
    n = sum(PEOPLE.values())
    rng = np.random.default_rng(2)
    arrays = {
        "images": pixels(n, 62, 47),
        "person": np.repeat(list(PEOPLE), list(PEOPLE.values())),
        "male": rng.integers(0, 2, n, dtype=np.uint8),
        "attributes": rng.integers(0, 2, (n, len(ATTRIBUTES)), dtype=np.uint8),
        "attribute_names": np.array(ATTRIBUTES),
    }
    return write_arrays(path, arrays, changes)


def lfw_folder(root):
    """The usual layout; returns (person, number) → the values in the attributes file, `Male` first."""
    rng = np.random.default_rng(3)
    rows = {
        (person, number): rng.normal(size=1 + len(ATTRIBUTES)).round(6)
        for person, images in PEOPLE.items()
        for number in range(1, images + 1)
    }
    for k, (person, number) in enumerate(rows):
        folder = root / "lfw_funneled" / person
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(1, 250, 250, seed=k)[0]).save(folder / f"{person}_{number:04}.jpg")
    lines = ["# LFW attributes", "\t".join(["#", "person", "imagenum", "Male", *ATTRIBUTES])]
    lines += [
        "\t".join([person.replace("_", " "), str(number), *map(str, values)])
        for (person, number), values in rows.items()
    ]
    (root / "lfw_attributes.txt").write_text("\n".join(lines) + "\n")
    return rows


def image_folder(root, classes=("cats", "dogs"), each=6):
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i, picture in enumerate(pixels(each, 20, 30, seed=label)):
            Image.fromarray(picture).save(root / name / f"{i}.{'png' if i % 2 else 'JPG'}")
    return root


def torchvision_cifar10(root, data_set, monkeypatch):
    """A folder as torchvision leaves it, with few images, and torchvision's checksums made to match."""

    def write(name, content):
        file = root / data_set.base_folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(content))
        return name, hashlib.md5(file.read_bytes()).hexdigest()

    batches = [
        write(name, {"data": pixels(2, seed=k).reshape(2, 3072), "labels": [k, k]})
        for k, name in enumerate(["data_batch_1", "data_batch_2", "test_batch"])
    ]
    name, md5 = write("batches.meta", {"label_names": [f"class {i}" for i in range(10)]})
    monkeypatch.setattr(data_set, "train_list", batches[:2])
    monkeypatch.setattr(data_set, "test_list", batches[2:])
    monkeypatch.setattr(data_set, "meta", {"filename": name, "key": "label_names", "md5": md5})
    return root


def class_names(data):
    """The names of the classes of a data set for classification."""
    assert isinstance(data.task, Classification)
    return data.task.class_names
