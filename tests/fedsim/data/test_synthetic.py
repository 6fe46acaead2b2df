import numpy as np

from fedsim.data import Synthetic


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


def test_a_planted_property_changes_the_images_that_have_it_and_no_others():
    plain = Synthetic(train_images=60, test_images=40).load(1)
    planted = Synthetic(train_images=60, test_images=40, planted=0.3).load(1)
    warm = planted.train_attributes["warm"]
    assert 5 < warm.sum() < 35
    assert np.array_equal(plain.train_images[~warm], planted.train_images[~warm])
    assert np.array_equal(plain.train_images[..., 0], planted.train_images[..., 0])
    blue = planted.train_images[warm][..., 2].astype(float), plain.train_images[warm][..., 2].astype(float)
    assert blue[0].mean() < 0.7 * blue[1].mean()
    assert not plain.train_attributes
    assert np.array_equal(plain.test_labels, planted.test_labels)
