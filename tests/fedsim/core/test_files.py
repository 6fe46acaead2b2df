import errno
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedsim.core.errors import RunFailedError, UserError
from fedsim.core.files import leftovers, write_json, write_npy, write_npz, writing, written_whole


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "result"
    file.write_text("old")
    with pytest.raises(RuntimeError), written_whole(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    with pytest.raises(OSError, match="result") as caught, written_whole(tmp_path / "result"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "result")


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_npz_bytes_depend_on_the_arrays_alone(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_npz(tmp_path / name, x=np.arange(5), y=np.array("text"))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_npy_bytes_are_numpys(tmp_path, dtype):
    for shape in ((3, 4), (0, 7), (5,)):
        array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        write_npy(tmp_path / "ours.npy", array.T)
        np.save(tmp_path / "numpys.npy", np.ascontiguousarray(array.T))
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_leftovers_are_what_was_not_finished(tmp_path):
    (tmp_path / "truth").mkdir()
    write_json(tmp_path / "truth/whole.json", {})
    with written_whole(tmp_path / "truth/part.npy") as temporary:
        temporary.touch()
        assert leftovers(tmp_path) == {temporary}
    assert not leftovers(tmp_path)


def test_a_folder_that_cannot_be_copied_says_why(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/dangling").symlink_to("nowhere")
    with (
        pytest.raises(UserError, match=r"--out new: cannot be written to: .*No such file"),
        writing(Path("new")),
    ):
        shutil.copytree(tmp_path / "folder", tmp_path / "new")


def test_a_full_disk_is_no_mistake_of_the_user():
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"), writing(Path("new")):
        raise full
    with pytest.raises(RunFailedError, match="No space left"), writing(Path("new")):
        raise shutil.Error([("old/a", "new/a", str(full))])
