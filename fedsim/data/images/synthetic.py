"""Procedural colour images in ten classes: a shape with a texture before a background.

The class is the shape; position, size, rotation, colours, texture and background vary from image to
image, so that a small network can learn something, and an inverted image shows something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Between
from pydantic import PositiveInt

from fedsim.core.seeds import Stage, stream
from fedsim.data.dataset import Dataset, Examples
from fedsim.data.images.labelled import labelled_images
from fedsim.data.partition import Iid, Partition
from fedsim.data.source import Source
from fedsim.tasks.images import ImageClassification

if TYPE_CHECKING:
    from fedsim.data.fetch import Fetching

Field = NDArray[np.float64]
"""(n, size, size): one value per pixel and image."""

_SIZE = 32
_PAINTED_TOGETHER = 40


class Synthetic(Source):
    """32×32 colour images generated from the scenario's seed; nothing to download."""

    task_type: ClassVar = ImageClassification

    name: Literal["synthetic"] = "synthetic"
    train_images: PositiveInt = 4000
    test_images: PositiveInt = 1000
    planted: Annotated[float, Between(ge=0, lt=1)] = 0.0
    """The part of the images with a planted property, the attribute `warm`: a red filter."""
    partition: Partition = Iid()

    def load(self, seed: int) -> Dataset:
        """The same images for the same seed; classes are equally likely."""
        train, test, plant = stream(seed, Stage.DATA).spawn(3)
        train_images, train_labels = _draw(self.train_images, train)
        test_images, test_labels = _draw(self.test_images, test)
        if not self.planted:
            return labelled_images(
                SHAPE_NAMES, Examples(train_images, train_labels), Examples(test_images, test_labels)
            )
        warm = plant.random(self.train_images + self.test_images) < self.planted
        train_warm, test_warm = warm[: self.train_images], warm[self.train_images :]
        return labelled_images(
            SHAPE_NAMES,
            Examples(_warmed(train_images, train_warm), train_labels, {"warm": train_warm}),
            Examples(_warmed(test_images, test_warm), test_labels, {"warm": test_warm}),
        )

    @classmethod
    def get(cls, fetching: Fetching) -> None:
        """Nothing to do: the images are drawn when they are needed."""


def _draw(n: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    labels = rng.integers(len(SHAPE_NAMES), size=n)
    drawn = (_place(n, rng), _texture(n, rng), _background(n, rng))
    images = np.empty((n, _SIZE, _SIZE, 3), dtype=np.uint8)
    # A few at a time: all at once would take a hundred times the memory of the images.
    for begin in range(0, n, _PAINTED_TOGETHER):
        part = slice(begin, begin + _PAINTED_TOGETHER)
        place, texture, background = (tuple(each[part] for each in numbers) for numbers in drawn)
        distance = _signed_distance(labels[part], *_placed_grid(*place))
        # A soft edge one pixel wide: hard edges alias at this size.
        coverage = np.clip(0.5 - distance * _SIZE / 4, 0, 1)[:, None]
        planes = _mixed(_blended(np.sin, *texture), _blended(np.tanh, *background), coverage)
        pixels = rng.standard_normal(images[part].shape)
        pixels *= 0.02
        pixels += np.moveaxis(planes, 1, 3)
        np.clip(pixels, 0, 1, out=pixels)
        pixels *= 255
        images[part] = np.rint(pixels, out=pixels)
    return images, labels.astype(np.int64)


def _warmed(images: NDArray[np.uint8], warm: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The images; the `warm` ones get less green and blue."""
    tint = np.where(warm[:, None, None, None], (1.0, 0.55, 0.25), 1.0)
    return np.asarray((images * tint).round(), dtype=np.uint8)


def _place(n: int, rng: np.random.Generator) -> tuple[Field, ...]:
    """Shift to the right and down, turn and scale of the shape, each (n, 1, 1)."""
    shift_x, shift_y, turn = (rng.uniform(-a, a, (n, 1, 1)) for a in (0.25, 0.25, 0.35))
    return shift_x, shift_y, turn, rng.uniform(0.75, 1.15, (n, 1, 1))


def _placed_grid(shift_x: Field, shift_y: Field, turn: Field, scale: Field) -> tuple[Field, Field]:
    """Coordinates of every pixel as the shape sees them: shifted, turned and scaled per image."""
    x, y = _grid()
    x, y = (x - shift_x) / scale, (y - shift_y) / scale
    return (
        (np.cos(turn) * x + np.sin(turn) * y),
        (np.cos(turn) * y - np.sin(turn) * x),
    )


def _grid() -> tuple[Field, Field]:
    """Coordinates (size, size) of the pixels, from -1 to 1: to the right, and down."""
    axis = np.linspace(-1, 1, _SIZE)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return x, y


def _signed_distance(labels: NDArray[np.int64], x: Field, y: Field) -> Field:
    """Roughly how far a pixel is outside its image's shape (negative inside)."""
    distance = np.empty_like(x)
    for label, shape in enumerate(_SHAPES.values()):
        mine = labels == label
        distance[mine] = shape(x[mine], y[mine])
    return distance


def _box(x: Field, y: Field) -> Field:
    return np.maximum(np.abs(x), np.abs(y))


def _cross(x: Field, y: Field) -> Field:
    upright = np.maximum(np.abs(x) / 0.2, np.abs(y) / 0.65)
    across = np.maximum(np.abs(y) / 0.2, np.abs(x) / 0.65)
    return (np.minimum(upright, across) - 1) * 0.2


def _heart(x: Field, y: Field) -> Field:
    curve = (x**2 + (y - 0.1) ** 2 - 0.28) ** 3 + x**2 * (y - 0.1) ** 3 * 0.9
    return np.cbrt(curve) * 0.9


_SHAPES: dict[str, Callable[[Field, Field], Field]] = {
    "disc": lambda x, y: np.hypot(x, y) - 0.6,
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.5) - 0.14,
    "square": lambda x, y: _box(x, y) - 0.52,
    "frame": lambda x, y: np.abs(_box(x, y) - 0.5) - 0.12,
    "triangle": lambda x, y: np.maximum(np.abs(x) * 0.87 + y * 0.5, -y) - 0.38,
    "cross": _cross,
    "star": lambda x, y: np.hypot(x, y) - 0.46 - 0.2 * np.cos(5 * np.arctan2(y, x)),
    "moon": lambda x, y: np.maximum(np.hypot(x, y) - 0.62, 0.5 - np.hypot(x - 0.3, y)),
    "stripes": lambda x, y: np.maximum(_box(x, y) - 0.6, np.abs(np.mod(y * 2.5, 1) - 0.5) * 0.4 - 0.1),
    "heart": _heart,
}
SHAPE_NAMES = tuple(_SHAPES)


def _texture(n: int, rng: np.random.Generator) -> tuple[Field, ...]:
    """Two bright colours, and a wave of random direction and wavelength that blends them."""
    bright, second = rng.uniform(0.45, 1, (n, 1, 1, 3)), rng.uniform(0.3, 1, (n, 1, 1, 3))
    return bright, second, *_wave(n, rng, low=2, high=14)


def _background(n: int, rng: np.random.Generator) -> tuple[Field, ...]:
    """Two dark colours, and the random direction of the gradient between them."""
    first, second = rng.uniform(0, 0.4, (n, 1, 1, 3)), rng.uniform(0, 0.55, (n, 1, 1, 3))
    direction, frequency, _ = _wave(n, rng, low=0.5, high=1.5)
    return first, second, direction, frequency, np.zeros_like(frequency)


def _wave(n: int, rng: np.random.Generator, *, low: float, high: float) -> tuple[Field, ...]:
    """Direction, frequency and phase, each (n, 1, 1)."""
    ranges = ((0, 2 * np.pi), (low, high), (0, 2 * np.pi))
    return tuple(rng.uniform(a, b, (n, 1, 1)) for a, b in ranges)


def _blended(shape: Callable[[Field], Field], *numbers: Field) -> NDArray[np.float64]:
    """(n, 3, size, size) two colours, blended by a wave of this shape."""
    first, second, direction, frequency, phase = numbers
    x, y = _grid()
    wave = frequency * (np.cos(direction) * x + np.sin(direction) * y) + phase
    blend = (0.5 + 0.5 * shape(wave))[:, None]
    return _mixed(np.moveaxis(first, 3, 1), np.moveaxis(second, 3, 1), blend)


def _mixed(first: Field, second: Field, share: Field) -> NDArray[np.float64]:
    """(n, 3, size, size) that `share` of the first, and the second for the rest.

    A plane for each colour: NumPy is slow along an axis of three.
    """
    mixed = first * share
    mixed += second * (1 - share)
    return mixed
