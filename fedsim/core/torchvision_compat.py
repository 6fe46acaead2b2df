"""Import torchvision beside a CPU build of torch.

The published torchvision wheel is a CUDA build. Its compiled operators do not load beside a CPU torch,
and its Python code then fails on import, because it attaches fake kernels to `torchvision::nms` and
`torchvision::qnms`, which nobody has declared. Declaring the two schemas is enough for everything that
is plain Python there: data sets, transforms, models. Calling `nms` itself still fails, as it should.
"""

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

# A library object takes its schemas along when it is collected, so they live as long as the module.
_declared: list[torch.library.Library] = []


def declare_missing_operators() -> list[str]:
    """Declare those of the two schemas that this process lacks; return their names."""
    # Beside a torch of the same build, torchvision's operators declare themselves. A second declaration would
    # end the process, so theirs come first.
    _load_compiled_operators()
    missing = [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    for name in missing:
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(_SCHEMAS[name])  # type: ignore[no-untyped-call]
        _declared.append(library)
    return missing


def _load_compiled_operators() -> None:
    found = find_spec("torchvision")
    assert found is not None
    assert found.origin is not None
    for file in Path(found.origin).parent.glob("_C*.so"):
        with suppress(OSError):  # another build than torch's
            torch.ops.load_library(file)  # type: ignore[no-untyped-call]


def torchvision() -> ModuleType:
    """The torchvision module, importable on a machine without CUDA."""
    declare_missing_operators()
    import torchvision

    module: ModuleType = torchvision
    return module
