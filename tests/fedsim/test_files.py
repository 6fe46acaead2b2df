import numpy as np
import pytest

from fedsim.files import write_json, write_npz, written_whole


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "result"
    file.write_text("old")
    with pytest.raises(RuntimeError), written_whole(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_npz_bytes_depend_on_the_arrays_alone(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_npz(tmp_path / name, x=np.arange(5), y=np.array("text"))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
