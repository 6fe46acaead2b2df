import os

import pytest

# Thread counts are part of a float's last digits; the suite fixes them before NumPy is loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


@pytest.fixture
def scenario_file(tmp_path):
    """A scenario small enough for a test: 6 clients, 24 rounds, a second to train."""
    file = tmp_path / "small.toml"
    file.write_text(
        """
        title = "Small"
        seed = 3
        [data]
        name = "synthetic"
        train_images = 200
        test_images = 50
        [model]
        name = "mlp"
        hidden = 8
        [clients]
        dataset_size = 16
        batch_size = 8
        [federation]
        clients = 6
        rounds = 24
        participation = { name = "bernoulli", rate = 0.3 }
        [analytics]
        window = 4
        """
    )
    return file
