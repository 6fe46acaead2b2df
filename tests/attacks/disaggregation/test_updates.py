"""Updates by least squares, when there are far more clients than rounds."""

import numpy as np

from attacks.disaggregation.recovery import UNKNOWN
from attacks.disaggregation.updates import least_squares


def test_clients_that_never_took_part_cost_nothing_and_have_the_update_zero():
    """The normal equations of all of them would take 3 GB."""
    columns = np.zeros((6, 20_000), dtype=np.uint8)
    columns[:, 3], columns[:, 7] = [1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 1]
    G = np.random.default_rng(0).normal(size=(20_000, 4))
    updates = least_squares(
        columns @ G, columns, np.full(columns.T.shape, np.nan), np.ones(20_000, dtype=np.bool_)
    )
    np.testing.assert_allclose(updates.values[[3, 7]], G[[3, 7]], rtol=1e-6)
    assert not updates.values[8:].any()
    assert np.flatnonzero(~np.isnan(updates.error)).tolist() == [3, 7]


def test_clients_that_nobody_separated_take_no_memory():
    """All their updates would take 400 GB."""
    clients, dim = 100_000, 1_000_000
    columns = np.full((2, clients), UNKNOWN)
    unknown = np.full((clients, 2), np.nan)
    updates = least_squares(np.ones((2, dim)), columns, unknown, np.zeros(clients, dtype=np.bool_))
    assert updates.values.shape == (clients, dim)
    assert np.isnan(updates.values[-1, -1])
