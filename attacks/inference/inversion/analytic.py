"""Images in closed form, from a first layer that is fully connected.

The gradient of a neuron's weights is its error times the image, and the gradient of its bias is the error:
their ratio is the image. With several images, and over any number of local steps, the rows [weights | bias]
of the change are mixtures M X of the rows [image | 1] of X. There are two ways to separate them. Blind source
separation uses that the edges of images are independent and rare. Sparsity uses that a neuron that is off for
an image does not contribute to it, so that the columns of M are the sparse vectors of its column space. The
last entry of a separated row gives its scale and sign.
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from attacks.inference.attack import Watch
from attacks.inference.evidence import Evidence
from attacks.inference.inversion.inversion import Inversion
from attacks.inference.knowledge import Knowledge
from attacks.inference.needs import LayerNeed

Rows = NDArray[np.float64]

_SINGULAR_TOLERANCE = 1e-6
"""Relative singular value below which a direction is a rounding error of float32."""
_SPARSE_TOLERANCE = 1e-4
"""Relative size below which an entry of a sparse vector counts as zero."""
_REWEIGHTINGS = 40
"""Iterations of reweighted least squares."""


class Analytic(Inversion):
    """Closed form from the first fully connected layer; several images by source separation.

    It is exact for one image, and for several images that activate different neurons. There can be no more
    images than neurons.
    """

    needs_layer: ClassVar[LayerNeed | None] = LayerNeed.FIRST
    imports: ClassVar[tuple[str, ...]] = ("torch", "sklearn.decomposition")

    name: Literal["analytic"] = "analytic"
    iterations: PositiveInt = 200
    """Most iterations of the separation of several images."""

    def invert(
        self, evidence: Evidence, row: int, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch
    ) -> tuple[NDArray[np.float32], int]:
        """All images in the evidence, but at most as many as the first layer has neurons."""
        weight, bias = (change.astype(np.float64) for change in knowledge.layers(evidence.updates[row])[:2])
        wanted = min(evidence.clients * knowledge.work.dataset_size, len(bias))
        mixtures = np.concatenate((weight, bias[:, None]), axis=1)
        # Noise is a mixture of other clients' images. Edges vary less in size than pixels do, so that even
        # the client's weakest image stands out from the noise. The bias covers an image without edges.
        edges = np.concatenate((_edges(mixtures, knowledge.task.input_shape), bias[:, None]), axis=1)
        U, size, _ = np.linalg.svd(edges, full_matrices=False)
        rank = min(wanted, int((size > _SINGULAR_TOLERANCE * size[0]).sum()))
        U, basis = U[:, :rank], U[:, :rank].T @ mixtures
        inputs = np.zeros((wanted, *knowledge.task.input_shape), dtype=np.float32)
        steps = 0
        if rank == 1:
            inputs[0] = np.clip(_images(basis), -1, 1).reshape(knowledge.task.input_shape)
        elif rank:
            unmixing, steps = self._independent(basis, knowledge.task.input_shape, rng)
            # Images stay within the range of inputs and mixtures leave it: keep the better separation.
            images = min((_images(way @ basis) for way in (unmixing, _sparse(U, unmixing))), key=_excess)
            inputs[:rank] = np.clip(images, -1, 1).reshape(rank, *knowledge.task.input_shape)
        return inputs, steps

    def _independent(
        self, basis: Rows, image_shape: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[Rows, int]:
        """(rank, rank) the combinations of the basis with independent edges, and the number of iterations."""
        from sklearn.decomposition import FastICA
        from sklearn.exceptions import ConvergenceWarning

        separation = FastICA(
            whiten="unit-variance", max_iter=self.iterations, random_state=int(rng.integers(2**31))
        )
        with warnings.catch_warnings():
            # A separation that has not converged is still used; the score shows how good it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            separation.fit(_edges(basis, image_shape).T)
        return np.asarray(separation.components_), int(separation.n_iter_)


def _sparse(U: Rows, unmixing: Rows) -> Rows:
    """The unmixing with every column of M = U unmixing⁻¹ replaced by a sparse one near it, if there is one.

    Reweighted least squares finds the sparse vectors U a, because large entries get small weights.
    """
    rank = len(unmixing)
    columns = np.linalg.pinv(unmixing)
    columns /= np.linalg.norm(U @ columns, axis=0)
    found, blur = columns, 0.3 * np.abs(U @ columns).max(axis=0)
    for _ in range(_REWEIGHTINGS):
        weight = 1 / ((U @ found) ** 2 + blur**2)
        normal = (U.T * weight.T[:, None, :]) @ U
        found = np.linalg.solve(normal, found.T[..., None])[..., 0].T
        found /= np.linalg.norm(U @ found, axis=0)
        blur = np.maximum(0.8 * blur, 1e-6 * np.abs(U @ found).max(axis=0))
    size = np.abs(U @ found)
    zeros = (size < _SPARSE_TOLERANCE * size.max(axis=0)).sum(axis=0)
    result, taken = columns.copy(), np.zeros(rank, dtype=np.bool_)
    kept: list[NDArray[np.float64]] = []
    for k in np.argsort(-zeros, kind="stable"):
        column = U @ found[:, k]
        # Any space of this rank has vectors with rank - 1 zeros; a sparse vector has more.
        if zeros[k] < rank + max(4, len(U) // 20) or any(abs(column @ other) > 0.999 for other in kept):
            continue
        kept.append(column)
        nearest = int(np.where(taken, -1, np.abs((U @ columns).T @ column)).argmax())
        taken[nearest], result[:, nearest] = True, found[:, k]
    return np.asarray(np.linalg.pinv(result))


def _edges(rows: Rows, image_shape: tuple[int, ...]) -> Rows:
    """(n, edges) differences of neighbouring pixels, down and across, of rows [pixels | bias]."""
    planes = rows[:, :-1].reshape(len(rows), *image_shape)
    return np.concatenate([np.diff(planes, axis=axis).reshape(len(rows), -1) for axis in (2, 3)], axis=1)


def _images(rows: Rows) -> Rows:
    """(n, pixels) each row divided by its last entry."""
    scale = rows[:, -1:]
    return np.asarray(rows[:, :-1] / np.where(scale == 0, np.inf, scale))


def _excess(images: Rows) -> float:
    """The mean distance of pixels from the range of inputs, at most 1 for each pixel."""
    return float(np.clip(np.abs(images) - 1, 0, 1).mean())
