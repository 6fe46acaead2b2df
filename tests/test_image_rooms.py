"""Images are one task among others: only the modules that are about images may name them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "fedsim/data/images/",
    "fedsim/tasks/images/",
    "fedsim/models/images/",
    "attacks/inference/inversion/",
    "scenarios/run/inference/images.py",
    "scenarios/run/inference/contact_sheet.py",
    "scenarios/run/inference/gallery.py",
    "scenarios/run/inference/similarity.py",
    "scenarios/run/scores.py",
)
"""The modules about images: sources, task, models, attacks, judge, and the figures of inversion."""

ALLOWED = re.compile(
    r"^\s*(from|import) .*$"  # who puts the library together imports from the rooms
    r"|attack\.auxiliary_images|auxiliary_images: NonNegativeInt"  # a setting that users know
    r"|data:image/png",  # how a page embeds a figure
    re.MULTILINE,
)

MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("fedsim", "attacks", "analytics", "scenarios")
    for path in (ROOT / package).rglob("*.py")
)


def names_images(text):
    return re.findall(r".*(?:image|pixel).*", ALLOWED.sub("", text), flags=re.IGNORECASE)


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(ROOMS)])
def test_only_the_rooms_of_images_name_them(module):
    assert names_images((ROOT / module).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_one(room):
    inside = [module for module in MODULES if module.startswith(room)]
    assert any(names_images((ROOT / module).read_text(encoding="utf-8")) for module in inside)
