import numpy as np

from fedsim.data import Synthetic


def test_synthetic_images_follow_the_seed():
    source = Synthetic(train_images=40, test_images=20)
    first, again, other = source.load(1), source.load(1), source.load(2)
    assert np.array_equal(first.train.inputs, again.train.inputs)
    assert not np.array_equal(first.train.inputs, other.train.inputs)
    assert not np.array_equal(first.train.inputs[:20], first.test.inputs)


def test_synthetic_images_have_something_to_see():
    data = Synthetic(train_images=300, test_images=1).load(0)
    assert data.train.inputs.shape == (300, 32, 32, 3)
    assert set(data.train.targets) == set(range(10))
    # A shape in front of a background: every image uses a good part of the range of brightness.
    assert (np.ptp(data.train.inputs.reshape(300, -1), axis=1) > 60).all()


def test_a_planted_property_changes_the_images_that_have_it_and_no_others():
    plain = Synthetic(train_images=60, test_images=40).load(1)
    planted = Synthetic(train_images=60, test_images=40, planted=0.3).load(1)
    warm = planted.train.attributes["warm"]
    assert 5 < warm.sum() < 35
    assert np.array_equal(plain.train.inputs[~warm], planted.train.inputs[~warm])
    assert np.array_equal(plain.train.inputs[..., 0], planted.train.inputs[..., 0])
    blue = planted.train.inputs[warm][..., 2].astype(float), plain.train.inputs[warm][..., 2].astype(float)
    assert blue[0].mean() < 0.7 * blue[1].mean()
    assert not plain.train.attributes
    assert np.array_equal(plain.test.targets, planted.test.targets)
