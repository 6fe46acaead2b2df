"""PSNR and SSIM are those of torchmetrics."""

import numpy as np
import torch

from fedsim.core.torchvision_compat import declare_missing_operators
from scenarios.run.inference.similarity import PERFECT_DB, psnr_db, ssim


def test_agrees_with_torchmetrics():
    declare_missing_operators()
    import torchmetrics.functional.image as reference

    rng = np.random.default_rng(0)
    images = rng.random((4, 32, 32, 3), dtype=np.float32)
    guesses = np.clip(images + rng.normal(0, 0.1, images.shape).astype(np.float32), 0, 1)
    guesses[0], guesses[1] = images[0], 0.5
    found, true = torch.from_numpy(guesses), torch.from_numpy(images)
    ratio = reference.peak_signal_noise_ratio(
        found, true, data_range=1.0, reduction="none", dim=(1, 2, 3)
    ).numpy()
    np.testing.assert_allclose(psnr_db(guesses, images), np.minimum(ratio, PERFECT_DB), rtol=1e-6)
    x, y = (each.permute(0, 3, 1, 2) for each in (found, true))
    similarity = reference.structural_similarity_index_measure(x, y, data_range=1.0, reduction="none")
    assert isinstance(similarity, torch.Tensor)
    np.testing.assert_allclose(ssim(guesses, images), similarity.numpy(), atol=1e-6)
