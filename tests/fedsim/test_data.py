import numpy as np
import pytest

from fedsim.data import Cifar10, Synthetic
from fedsim.errors import UserError


def test_synthetic_images_follow_the_seed():
    source = Synthetic(train_images=40, test_images=20)
    first, again, other = source.load(1), source.load(1), source.load(2)
    assert np.array_equal(first.train_images, again.train_images)
    assert not np.array_equal(first.train_images, other.train_images)
    assert not np.array_equal(first.train_images[:20], first.test_images)


def test_synthetic_images_have_something_to_see():
    data = Synthetic(train_images=300, test_images=1).load(0)
    assert data.train_images.shape == (300, 32, 32, 3)
    assert set(data.train_labels) == set(range(10))
    # A shape in front of a background: every image uses a good part of the range of brightness.
    assert (np.ptp(data.train_images.reshape(300, -1), axis=1) > 60).all()


def write_npz(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 12),
        "x_test": rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8),
        "y_test": rng.integers(0, 10, 4),
    } | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return arrays


def test_cifar10_from_npz(tmp_path):
    arrays = write_npz(tmp_path / "c.npz")
    data = Cifar10(path=tmp_path / "c.npz").load(0)
    assert np.array_equal(data.train_images, arrays["x_train"])
    assert np.array_equal(data.test_labels, arrays["y_test"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"y_train": None}, "y_train"),
        ({"x_train": np.zeros((12, 32, 32), np.uint8)}, "height, width, 3"),
        ({"y_train": np.full(12, 10)}, "0..9"),
        ({"y_test": np.zeros(3, np.int64)}, "3 for 4 images"),
    ],
)
def test_cifar10_npz_that_is_something_else(tmp_path, changes, problem):
    write_npz(tmp_path / "c.npz", **changes)
    with pytest.raises(UserError, match=problem):
        Cifar10(path=tmp_path / "c.npz").load(0)


def test_cifar10_truncated_file(tmp_path):
    write_npz(tmp_path / "c.npz")
    whole = (tmp_path / "c.npz").read_bytes()
    (tmp_path / "c.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a CIFAR-10"):
        Cifar10(path=tmp_path / "c.npz").load(0)


@pytest.mark.parametrize("name", ["nothing.npz", "no_folder"])
def test_cifar10_that_is_not_there(tmp_path, name):
    with pytest.raises(UserError, match=r"data\.path.*" + name):
        Cifar10(path=tmp_path / name).load(0)
