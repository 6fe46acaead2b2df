"""Reading the models that a server saved round by round.

A checkpoint is a file or, if it comes in shards, a folder of files. The last number in its name is the number
of rounds after which it was saved; 0 is the initial model. Nothing is unpickled but tensors.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.core.buffers import BUFFERS, is_trained
from fedsim.core.errors import UserError
from fedsim.core.files import check_regular, load_npz, reading
from fedsim.core.locks import LOCK_FILE

SUFFIXES = (".npz", ".npy", ".safetensors", ".pt", ".pth")

_SAFETENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""NumPy's names of the float types; brain floats are read as the upper halves of 32-bit floats."""


@dataclass(frozen=True)
class Checkpoints:
    """`models` (n, dim) float64 or float32, memory-mapped, ascending in `rounds` (n,).

    `rounds` is the number of rounds after which each was saved. `layer_shapes` are the shapes of the arrays
    that an entry belongs to; None if the files do not say.
    """

    models: NDArray[Any]
    rounds: NDArray[np.int64]
    layer_shapes: tuple[tuple[int, ...], ...] | None

    @classmethod
    def read(cls, path: Path, skip: Sequence[str] = BUFFERS) -> Checkpoints:
        """All checkpoints in a folder, or the rows of one `.npy` file or `.npz` file with one table.

        Arrays of other types than floats stay aside, and so do those whose names match a pattern in `skip`.
        """
        check_regular(path)
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder")
        if path.is_file():
            return cls._rows_of(path)
        numbered = _numbered(path)
        first = _arrays_of(numbered[0][1])
        names = [name for name in first if is_trained(name, first[name], skip)]
        if not names:
            raise UserError(f"{numbered[0][1]}: there are no float arrays in it, buffers aside")
        shapes = tuple(first[name].shape for name in names)
        dim = sum(math.prod(shape) for shape in shapes)
        wide = any(first[name].dtype == np.float64 for name in names)
        with tempfile.TemporaryFile(prefix="fedsim-audit-") as copy:
            dtype = np.float64 if wide else np.float32
            models = np.memmap(copy, dtype=dtype, mode="w+", shape=(len(numbered), dim))
        for row, (_, checkpoint) in enumerate(numbered):
            arrays = first if row == 0 else _arrays_of(checkpoint)
            for name, shape in zip(names, shapes, strict=True):
                found = arrays.get(name)
                if found is None or found.shape != shape:
                    what = "is missing" if found is None else f"has shape {found.shape}"
                    raise UserError(f"{checkpoint}: the array {name!r} {what}, expected shape {shape}")
            models[row] = np.concatenate([arrays[name].reshape(-1) for name in names])
        return cls(models, np.array([number for number, _ in numbered], dtype=np.int64), shapes)

    @classmethod
    def _rows_of(cls, path: Path) -> Checkpoints:
        """A table with one model per row, the initial model first."""
        if path.suffix not in (".npy", ".npz"):
            raise UserError(f"{path}: expected a folder of checkpoints, or a table of models as .npy or .npz")
        with reading(path, "a table of models"):
            tables = _arrays_of(path)
            if len(tables) != 1:
                raise ValueError(f"expected one array, and it holds {len(tables)}")
            (table,) = tables.values()
            if table.ndim != 2 or table.dtype.kind != "f":
                raise ValueError(f"shape {table.shape} of {table.dtype}, expected floats, models × entries")
        return cls(table, np.arange(len(table)), None)


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a folder by their numbers, in order."""
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name == LOCK_FILE or not (path.is_dir() or path.suffix in SUFFIXES):
            continue
        digits = re.findall(r"\d+", path.name if path.is_dir() else path.stem)
        if not digits or len(digits[-1]) > 9:
            continue
        number = int(digits[-1])
        if number in found:
            raise UserError(f"{path}: {found[number].name} is a checkpoint of round {number} too")
        found[number] = path
    if len(found) < 2:
        kinds = ", ".join(SUFFIXES)
        raise UserError(f"{folder}: expected checkpoints with a number in their names ({kinds}, or folders)")
    return sorted(found.items())


def _arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a checkpoint by name; 16-bit brain floats become 32-bit floats."""
    if path.is_dir():
        shards = [file for file in sorted(path.iterdir()) if file.suffix in SUFFIXES]
        return {name: array for shard in shards for name, array in _arrays_of(shard).items()}
    with reading(path, "a checkpoint"):
        match path.suffix:
            case ".npz":
                return load_npz(path)
            case ".npy":
                return {"": np.load(path, allow_pickle=False)}
            case ".safetensors":
                return _from_safetensors(path)
            case _:
                return _from_torch(path)


def _from_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """A header of JSON with the type, the shape and the place of each tensor, then their bytes."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    arrays = {}
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] not in _SAFETENSORS:
            continue
        start, stop = (8 + length + int(offset) for offset in tensor["data_offsets"])
        array = np.frombuffer(content[start:stop], dtype=_SAFETENSORS[tensor["dtype"]])
        if tensor["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = array.reshape(tensor["shape"])
    return arrays


def _from_torch(path: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a state dictionary, which may be an entry of the file, such as `model`."""
    import pickle

    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, IndexError) as error:
        # PyTorch's own message advises to run whatever code the file holds.
        raise ValueError("it is not written by torch.save, or it holds more than tensors") from error
    tensors = _state_dict(content, torch.Tensor)
    if tensors is None:
        raise ValueError("it holds no dictionary of tensors")
    return {
        name: (t.float() if t.dtype == torch.bfloat16 else t).detach().numpy() for name, t in tensors.items()
    }


def _state_dict(content: object, tensor: type) -> Mapping[str, Any] | None:
    """The first dictionary, from the outside in, whose values are all tensors."""
    if not isinstance(content, Mapping):
        return None
    if content and all(isinstance(value, tensor) for value in content.values()):
        return content
    return next(filter(None, (_state_dict(value, tensor) for value in content.values())), None)
