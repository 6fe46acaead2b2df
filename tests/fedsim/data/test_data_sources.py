"""Every source loads an intact copy as it is, and names what is wrong with any other."""

import re
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from fedsim.core.errors import UserError
from fedsim.core.torchvision_compat import torchvision
from fedsim.data import Cifar10, Cifar100, Examples, Folder, Lfw
from fedsim.data.images.labelled import labelled_images
from tests.helpers import copies
from tests.helpers.copies import class_names

NPZ = {
    "cifar10": (Cifar10, copies.cifar10_npz),
    "cifar100": (Cifar100, copies.cifar100_npz),
    "lfw": (Lfw, copies.lfw_npz),
}


def mistake(source, seed=0):
    """The one line that loading ends in."""
    with pytest.raises(UserError) as caught:
        source.load(seed)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(a, b):
    return all(
        np.array_equal(one.inputs, other.inputs) and np.array_equal(one.targets, other.targets)
        for one, other in ((a.train, b.train), (a.test, b.test))
    )


def test_cifar10_from_a_file_or_the_folder_around_it(tmp_path):
    arrays = copies.cifar10_npz(tmp_path / "cifar10.npz")
    data = Cifar10(path=tmp_path / "cifar10.npz").load(0)
    assert np.array_equal(data.train.inputs, arrays["x_train"])
    assert np.array_equal(data.test.targets, arrays["y_test"])
    assert same(Cifar10(path=tmp_path).load(0), data)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"y_train": None}, "y_train missing"),
        ({"x_train": np.zeros((12, 32, 32), np.uint8)}, "height, width, 3"),
        ({"x_train": np.zeros((12, 28, 28, 3), np.uint8)}, r"28, 28"),
        ({"y_train": np.full(12, 10)}, r"0\.\.9"),
        ({"y_test": np.zeros(3, np.int64)}, "3 for 4 images"),
        ({"y_test": np.full(4, 0.5)}, "integers, got .* float64"),
        ({"y_test": np.zeros((4, 1), np.int64)}, r"integers, got \(4, 1\)"),
        ({"x_test": np.zeros((0, 32, 32, 3), np.uint8), "y_test": np.zeros(0, int)}, "there are none"),
    ],
)
def test_cifar10_npz_that_is_something_else(tmp_path, changes, problem):
    copies.cifar10_npz(tmp_path / "c.npz", **changes)
    message = mistake(Cifar10(path=tmp_path / "c.npz"))
    assert "c.npz" in message
    assert re.search(problem, message)


@pytest.mark.parametrize("source", [Cifar10, Cifar100, Lfw, Folder])
@pytest.mark.parametrize("name", ["nothing.npz", "no_folder"])
def test_a_copy_that_is_not_there(tmp_path, source, name):
    message = mistake(source(path=tmp_path / name))
    assert message.startswith("data.path: ")
    assert f"{tmp_path / name} " in message
    assert "(expected " in message


@pytest.mark.parametrize("name", NPZ)
def test_a_truncated_file_is_named(tmp_path, name):
    source, write = NPZ[name]
    write(tmp_path / "c.npz")
    whole = (tmp_path / "c.npz").read_bytes()
    for kept in (0, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "c.npz").write_bytes(whole[:kept])
        assert "c.npz is damaged" in mistake(source(path=tmp_path / "c.npz"))


@pytest.mark.parametrize("compressed", [False, True])
def test_an_altered_byte_is_found_or_harmless(tmp_path, compressed):
    file = tmp_path / "c.npz"
    arrays = copies.cifar10_npz(file)
    if compressed:
        np.savez_compressed(file, **arrays)
    whole, intact = file.read_bytes(), Cifar10(path=file).load(0)
    found = 0
    for place in np.random.default_rng(0).integers(len(whole), size=60).tolist():
        altered = bytearray(whole)
        altered[place] ^= 0x55
        file.write_bytes(altered)
        try:
            assert same(Cifar10(path=file).load(0), intact)
        except UserError as error:
            found += 1
            assert "c.npz" in str(error)
    assert found > 50


def test_a_pickle_in_an_npz_is_not_opened(tmp_path):
    copies.cifar10_npz(tmp_path / "c.npz", y_train=np.array([{}] * 12, dtype=object))
    assert "allow_pickle" in mistake(Cifar10(path=tmp_path / "c.npz"))


def test_torchvision_folder(tmp_path, monkeypatch):
    root = copies.torchvision_cifar10(tmp_path, torchvision().datasets.CIFAR10, monkeypatch)
    data = Cifar10(path=root).load(0)
    assert data.train.inputs.shape == (4, 32, 32, 3)
    assert data.train.targets.tolist() == [0, 0, 1, 1]
    assert class_names(data)[3] == "class 3"


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_torchvision_folder_with_a_wrong_file(tmp_path, monkeypatch, name):
    root = copies.torchvision_cifar10(tmp_path, torchvision().datasets.CIFAR10, monkeypatch)
    file = root / "cifar-10-batches-py" / name
    file.write_bytes(file.read_bytes()[:-1])
    assert f"{name} is damaged: its MD5 is not" in mistake(Cifar10(path=root))
    file.unlink()
    assert f"{name} is missing: the copy is not complete" in mistake(Cifar10(path=root))


@pytest.mark.parametrize("source", [Cifar10, Cifar100])
def test_a_missing_copy_names_the_command_that_gets_it(tmp_path, source):
    name = source.model_fields["name"].default
    assert mistake(source(path=tmp_path)).endswith(f": fedsim data get {name} --into {tmp_path}")


def test_cifar100_without_a_test_part_sets_one_aside_by_the_seed(tmp_path):
    arrays = copies.cifar100_npz(tmp_path / "c.npz")
    source = Cifar100(path=tmp_path / "c.npz", test_fraction=0.25)
    data, again, other = source.load(1), source.load(1), source.load(2)
    assert (len(data.train.targets), len(data.test.targets)) == (150, 50)
    assert same(data, again)
    assert not same(data, other)
    both = np.concatenate([data.train.inputs, data.test.inputs])
    assert Counter(map(bytes, both)) == Counter(map(bytes, arrays["x_train"]))


def test_cifar100_with_a_test_part_keeps_it(tmp_path):
    copies.cifar100_npz(tmp_path / "c.npz", x_test=copies.pixels(3), y_test=np.array([1, 2, 99]))
    data = Cifar100(path=tmp_path / "c.npz").load(0)
    assert (len(data.train.targets), data.test.targets.tolist()) == (200, [1, 2, 99])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"class_names": None}, "class_names missing"),
        ({"class_names": np.array(["a"] * 99)}, r"0\.\.98"),
        ({"x_test": copies.pixels(3)}, "both x_test and y_test"),
        ({"y_train": np.zeros(7, int)}, "y_train"),
    ],
)
def test_cifar100_npz_that_is_something_else(tmp_path, changes, problem):
    copies.cifar100_npz(tmp_path / "c.npz", **changes)
    assert re.search(problem, mistake(Cifar100(path=tmp_path / "c.npz")))


def test_lfw_from_npz(tmp_path):
    arrays = copies.lfw_npz(tmp_path / "lfw.npz")
    data = Lfw(path=tmp_path, task="Smiling").load(0)
    position = {bytes(image): k for k, image in enumerate(arrays["images"])}
    for images, labels, attributes in (
        (data.train.inputs, data.train.targets, data.train.attributes),
        (data.test.inputs, data.test.targets, data.test.attributes),
    ):
        rows = [position[bytes(image)] for image in images]
        assert labels.tolist() == arrays["attributes"][rows, 1].tolist()
        assert attributes["Male"].tolist() == (arrays["male"][rows] == 1).tolist()
        assert attributes["Wearing Hat"].tolist() == (arrays["attributes"][rows, 2] == 1).tolist()
    assert class_names(data) == ("not Smiling", "Smiling")


@pytest.mark.parametrize("seed", range(5))
def test_lfw_has_nobody_in_both_parts(tmp_path, seed):
    arrays = copies.lfw_npz(tmp_path / "c.npz")
    data = Lfw(path=tmp_path / "c.npz").load(seed)
    person = {bytes(image): name for image, name in zip(arrays["images"], arrays["person"], strict=True)}
    train, test = ({person[bytes(image)] for image in part} for part in (data.train.inputs, data.test.inputs))
    assert train | test == set(copies.PEOPLE)
    assert not train & test


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"male": np.full(12, 2)}, "Male: expected 0 and 1 only"),
        ({"person": np.array(["A"])}, "person: .* for 12 images"),
        ({"images": copies.pixels(12)}, "62, 47"),
        ({"attribute_names": np.array(["Asian"])}, r"attributes: expected \(n, 1\)"),
    ],
)
def test_lfw_npz_that_is_something_else(tmp_path, changes, problem):
    copies.lfw_npz(tmp_path / "c.npz", **changes)
    assert re.search(problem, mistake(Lfw(path=tmp_path / "c.npz")))


def test_lfw_from_the_usual_layout(tmp_path):
    rows = copies.lfw_folder(tmp_path)
    data = Lfw(path=tmp_path).load(0)
    assert data.task.input_shape == (3, 62, 47)
    male = np.concatenate([data.train.targets, data.test.targets])
    assert sorted(male) == sorted(values[0] > 0 for values in rows.values())
    assert list(data.train.attributes) == ["Male", *copies.ATTRIBUTES]
    assert data.train.attributes["Male"].tolist() == (data.train.targets == 1).tolist()
    with Image.open(tmp_path / "lfw_funneled/Bo_Beta/Bo_Beta_0001.jpg") as picture:
        face = np.asarray(picture.crop((78, 70, 172, 195)).resize((47, 62)))
    assert any(np.array_equal(face, image) for image in np.r_[data.train.inputs, data.test.inputs])


def test_lfw_unknown_task_lists_the_attributes(tmp_path):
    copies.lfw_npz(tmp_path / "c.npz")
    assert "data.task is 'tall': expected one of Male, Asian" in mistake(
        Lfw(path=tmp_path / "c.npz", task="tall")
    )


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda root: truncate(root / "lfw_funneled/Bo_Beta/Bo_Beta_0001.jpg"),
            "Bo_Beta_0001.jpg is damaged",
        ),
        (lambda root: (root / "lfw_funneled/Bo_Beta/Bo_Beta_0001.jpg").unlink(), "1 of the 12.*Bo_Beta_0001"),
        (
            lambda root: Image.new("RGB", (94, 125)).save(root / "lfw_funneled/Bo_Beta/Bo_Beta_0001.jpg"),
            "expected 250×250 pixels, got 94×125",
        ),
        (lambda root: (root / "lfw_attributes.txt").unlink(), "holds no LFW"),
        (lambda root: (root / "lfw_attributes.txt").write_text("hello\n"), "line 1: 1 columns"),
        (lambda root: (root / "lfw_attributes.txt").write_text("# nothing\n"), "no line '# person"),
        (
            lambda root: (root / "lfw_attributes.txt").write_text(
                "#\tperson\timagenum\tMale\nAda Alpha\t1\t0.5\n"
            ),
            "describes only 1 of 12 pictures",
        ),
        (
            lambda root: (root / "lfw_attributes.txt").write_text(
                "#\tperson\timagenum\tMale\nAda Alpha\tone\t0.5\n"
            ),
            "line 2: invalid literal",
        ),
        (
            lambda root: truncate(root / "lfw_attributes.txt"),
            "columns, expected|describes only|invalid|could not",
        ),
    ],
)
def test_lfw_folder_that_is_not_whole(tmp_path, damage, problem):
    copies.lfw_folder(tmp_path)
    damage(tmp_path)
    assert re.search(problem, mistake(Lfw(path=tmp_path)))


def test_folder_of_pictures(tmp_path):
    root = copies.image_folder(tmp_path / "pets")
    (root / ".hidden").mkdir()
    (root / "cats" / ".DS_Store").touch()
    (root / "notes.txt").touch()
    data = Folder(path=root, size=16, test_fraction=0.25).load(0)
    assert class_names(data) == ("cats", "dogs")
    assert data.task.input_shape == (3, 16, 16)
    assert (len(data.train.targets), len(data.test.targets)) == (9, 3)
    assert np.bincount(np.r_[data.train.targets, data.test.targets]).tolist() == [6, 6]
    assert not same(data, Folder(path=root, size=16, test_fraction=0.25).load(1))


def test_folder_keeps_proportions(tmp_path):
    """Of a wide picture the middle is kept: its left and right edges are not squeezed in."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        picture = np.zeros((10, 30, 3), np.uint8)
        picture[:, 10:20] = 255
        Image.fromarray(picture).save(tmp_path / name / "0.png")
    assert (Folder(path=tmp_path, size=10, test_fraction=0.5).load(0).train.inputs == 255).all()


def test_grey_pictures_of_16_bits_keep_their_shades(tmp_path):
    """The same picture in 8 and 16 bits: Pillow would clip the second to white."""
    shades = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for name, pixels in (("eight", shades), ("sixteen", shades.astype(np.uint16) * 257)):
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "0.png")
    data = Folder(path=tmp_path, size=16, test_fraction=0.5).load(0)
    assert np.array_equal(data.train.inputs[0, ..., 0], shades)
    assert np.array_equal(data.test.inputs[0, ..., 0], shades)


def test_pictures_of_32_bits_are_refused(tmp_path):
    root = copies.image_folder(tmp_path / "pets")
    Image.fromarray(np.full((8, 8), 70_000, np.int32)).save(root / "cats" / "9.png", format="TIFF")
    assert "cats/9.png has pixels of 32 bits" in mistake(Folder(path=root))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda root: truncate(root / "cats/1.png"), "cats/1.png is damaged"),
        (lambda root: truncate(root / "dogs/2.JPG"), "dogs/2.JPG is damaged"),
        (lambda root: (root / "dogs/2.JPG").write_text("<html>"), "dogs/2.JPG is damaged or no picture"),
        (lambda root: (root / "dogs/7.jpg.part").touch(), "7.jpg.part is neither .png nor .jpg"),
        (lambda root: (root / "birds").mkdir(), "birds is empty"),
        (lambda root: [file.unlink() for file in (root / "cats").iterdir()], "cats is empty"),
    ],
)
def test_folder_that_is_not_whole(tmp_path, damage, problem):
    root = copies.image_folder(tmp_path / "pets")
    damage(root)
    assert re.search(problem, mistake(Folder(path=root)))


def test_a_png_with_an_altered_byte_is_never_another_picture(tmp_path):
    root = copies.image_folder(tmp_path / "pets", each=2)
    intact, file = Folder(path=root).load(0), root / "cats" / "1.png"
    whole = file.read_bytes()
    for place in np.random.default_rng(0).integers(len(whole), size=40).tolist():
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert same(Folder(path=root).load(0), intact)
        except UserError as error:
            assert "cats/1.png is damaged" in str(error)


def test_folder_needs_two_classes(tmp_path):
    assert "holds 1 folders" in mistake(
        Folder(path=copies.image_folder(tmp_path / "pets", classes=("cats",)))
    )


def test_attributes_belong_to_images():
    images, labels = copies.pixels(2), np.array([0, 1])

    def with_hats(train, test):
        parts = (Examples(images, labels, has) for has in (train, test))
        return labelled_images(("no", "yes"), *parts)

    with pytest.raises(ValueError, match="attribute Hat: expected one bool"):
        with_hats({"Hat": np.array([True])}, {"Hat": np.array([True, False])})
    with pytest.raises(ValueError, match="not those of the training images"):
        with_hats({"Hat": np.array([True, False])}, {})
