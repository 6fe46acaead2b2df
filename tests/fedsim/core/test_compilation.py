"""Compiled loops are kept as long as their sources stay the same, and no longer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ADD = """
import numpy as np
from fedsim.loops import add
from fedsim.training.stacked import vectors
found = np.zeros(vectors.LINE_FLOATS, np.float32)
add(np.ones(vectors.LINE_FLOATS, np.float32), np.zeros_like(found), found)
print(found.sum(), sum(add.stats.cache_hits.values()))
"""

LOOPS = """
from fedsim.core.compilation import compiled
from fedsim.training.stacked import vectors

@compiled(vectors)
def add(numbers, sums, squares):
    vectors.add_squares(numbers, 0, len(numbers), 1, sums, squares, 0)
"""

SCALE = """
import numpy as np
from fedsim.tasks.images.stacked import scale_rows
out = np.zeros((1, 1), np.float32)
scale_rows(np.array([[255]], np.uint8), np.array([0]), out)
print(out.sum(), sum(scale_rows.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, without anything compiled, and with a loop that is compiled quickly."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "fedsim", copy / "fedsim", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "fedsim" / "loops.py").write_text(LOOPS)
    return copy


def run(package, code, **environment):
    """What the code prints in a process that imports the copy: its result, and the hits of the cache."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    # Python's own compiled files go by dates and sizes, too.
    variables |= {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, cwd=package, capture_output=True, text=True, check=True
    )
    result, hits = done.stdout.split()
    return float(result), int(hits)


def change(file, old, new):
    """Another text of the same length, with the same dates: nothing but its content gives it away."""
    before, text = file.stat(), file.read_text()
    assert old in text
    assert len(old) == len(new)
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("code", "file", "texts", "results"),
    [
        (
            ADD,
            "fedsim/training/stacked/vectors.py",
            ("builder.fadd(total", "builder.fsub(total"),
            (32, -32),
        ),
        (SCALE, "fedsim/tasks/images/pixels.py", ("MID_GREY = 127.5", "MID_GREY = 510.0"), (1, -0.5)),
    ],
    ids=["instructions", "a constant"],
)
def test_a_source_that_changed_is_compiled_anew(package, code, file, texts, results):
    before, after = results
    assert run(package, code) == (before, 0)
    assert run(package, code) == (before, 1)
    change(package / file, *texts)
    assert run(package, code) == (after, 0)


def test_without_a_folder_to_write_to_every_process_compiles_for_itself(package, tmp_path):
    """A file in the place of every folder that numba would make: even root cannot write there."""
    (package / "fedsim" / "tasks" / "images" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    assert run(package, SCALE, **home) == run(package, SCALE, **home) == (1, 0)
