"""Images in closed form, from the first layer of a network that begins with a fully connected one.

The gradient of a neuron's weights is its error times the image, and the gradient of its bias the error
alone: the change of the weights over the change of the bias is the image. With several images, and over
any number of local steps, the rows [weights | bias] of the change are mixtures M X of the rows [image | 1]
of X. Two things unmix them. Images are the sources of a blind separation: their edges are independent
and rare. And a neuron that is off for an image does not mix it in, so that the columns of M are the
sparse vectors of its column space. Whatever is unmixed, its last entry gives scale and sign.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from attacks.inference.attack import Watch
from attacks.inference.evidence import Evidence
from attacks.inference.inversion.inversion import Inversion
from attacks.inference.knowledge import Knowledge
from fedsim.core.errors import UserError

Rows = NDArray[np.float64]

_RANK = 1e-6
"""Relative singular value below which a direction is the rounding of float32."""
_ZERO = 1e-4
"""Relative entry of a sparse vector below which it is zero."""


class Analytic(Inversion):
    """Closed form from the first fully connected layer; several images by independent components.

    Exact for one image, and for several that neurons tell apart. There can be no more images than neurons.
    """

    name: Literal["analytic"] = "analytic"
    iterations: PositiveInt = 200
    """At most so many steps of the separation of several images."""

    def check(self, knowledge: Knowledge) -> None:
        """The network has to begin with a fully connected layer that has a bias."""
        super().check(knowledge)
        pixels = math.prod(knowledge.task.input_shape)
        first = knowledge.layer_shapes[:2]
        if len(first) < 2 or first[0][1:] != (pixels,) or first[1] != first[0][:1]:
            raise UserError(
                f"attack.inference: analytic needs a model whose first layer is fully connected, with a "
                f"bias and {pixels} inputs; model {knowledge.model.name} has none"
            )

    def invert(
        self, evidence: Evidence, row: int, knowledge: Knowledge, *, rng: np.random.Generator, watch: Watch
    ) -> tuple[NDArray[np.float32], int]:
        """As many images as the evidence holds, or as the first layer has neurons."""
        weight, bias = (change.astype(np.float64) for change in knowledge.layers(evidence.updates[row])[:2])
        wanted = min(evidence.clients * knowledge.work.dataset_size, len(bias))
        mixtures = np.concatenate((weight, bias[:, None]), axis=1)
        # Noise is a mixture of others' images. Edges are more alike in size than pixels are, and the weakest
        # of the client's images stand out from it; the bias is for an image that has no edges.
        edges = np.concatenate((_edges(mixtures, knowledge.task.input_shape), bias[:, None]), axis=1)
        U, size, _ = np.linalg.svd(edges, full_matrices=False)
        rank = min(wanted, int((size > _RANK * size[0]).sum()))
        U, basis = U[:, :rank], U[:, :rank].T @ mixtures
        inputs = np.zeros((wanted, *knowledge.task.input_shape), dtype=np.float32)
        steps = 0
        if rank == 1:
            inputs[0] = np.clip(_images(basis), -1, 1).reshape(knowledge.task.input_shape)
        elif rank:
            unmixing, steps = self._independent(basis, knowledge.task.input_shape, rng)
            # Images stay within the range of inputs, mixtures leave it: that tells which way is better.
            images = min((_images(way @ basis) for way in (unmixing, _sparse(U, unmixing))), key=_excess)
            inputs[:rank] = np.clip(images, -1, 1).reshape(rank, *knowledge.task.input_shape)
        return inputs, steps

    def _independent(
        self, basis: Rows, image_shape: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[Rows, int]:
        """(rank, rank) the combinations of the basis whose edges are independent; and the steps it took."""
        from sklearn.decomposition import FastICA
        from sklearn.exceptions import ConvergenceWarning

        separation = FastICA(
            whiten="unit-variance", max_iter=self.iterations, random_state=int(rng.integers(2**31))
        )
        with warnings.catch_warnings():
            # Not converged after so many steps is as good as it gets, and shows in the score.
            warnings.simplefilter("ignore", ConvergenceWarning)
            separation.fit(_edges(basis, image_shape).T)
        return np.asarray(separation.components_), int(separation.n_iter_)


def _sparse(U: Rows, unmixing: Rows) -> Rows:
    """The unmixing with every column of M = U unmixing⁻¹ replaced by a sparse one near it, if there is one.

    Reweighted least squares: of the vectors U a, the one that is shortest when large entries weigh little.
    """
    rank = len(unmixing)
    columns = np.linalg.pinv(unmixing)
    columns /= np.linalg.norm(U @ columns, axis=0)
    found, blur = columns, 0.3 * np.abs(U @ columns).max(axis=0)
    for _ in range(40):
        weight = 1 / ((U @ found) ** 2 + blur**2)
        normal = np.einsum("jr,jk,js->krs", U, weight, U, optimize=True)
        found = np.linalg.solve(normal, found.T[..., None])[..., 0].T
        found /= np.linalg.norm(U @ found, axis=0)
        blur = np.maximum(0.8 * blur, 1e-6 * np.abs(U @ found).max(axis=0))
    size = np.abs(U @ found)
    zeros = (size < _ZERO * size.max(axis=0)).sum(axis=0)
    result, taken = columns.copy(), np.zeros(rank, dtype=np.bool_)
    kept: list[NDArray[np.float64]] = []
    for k in np.argsort(-zeros, kind="stable"):
        column = U @ found[:, k]
        # Any vector of the space can be made to vanish in rank - 1 places; a sparse one vanishes in more.
        if zeros[k] < rank + max(4, len(U) // 20) or any(abs(column @ other) > 0.999 for other in kept):
            continue
        kept.append(column)
        place = int(np.where(taken, -1, np.abs((U @ columns).T @ column)).argmax())
        taken[place], result[:, place] = True, found[:, k]
    return np.asarray(np.linalg.pinv(result))


def _edges(rows: Rows, image_shape: tuple[int, ...]) -> Rows:
    """(n, edges) differences of neighbouring pixels, down and across, of rows [pixels | bias]."""
    planes = rows[:, :-1].reshape(len(rows), *image_shape)
    return np.concatenate([np.diff(planes, axis=axis).reshape(len(rows), -1) for axis in (2, 3)], axis=1)


def _images(rows: Rows) -> Rows:
    """(n, pixels) each row over its last entry."""
    scale = rows[:, -1:]
    return np.asarray(rows[:, :-1] / np.where(scale == 0, np.inf, scale))


def _excess(images: Rows) -> float:
    """How far pixels are outside of the range of inputs, on average; at most 1 for each."""
    return float(np.clip(np.abs(images) - 1, 0, 1).mean())
