"""The sentences of a report."""

import pytest

from scenarios.run.report import about_counts
from scenarios.run.sections import Analytics


@pytest.mark.parametrize(
    ("error", "missing", "window", "said"),
    [
        (0.0, 0.0, 8.0, "Counts are exact: one per client every 8 rounds."),
        (1.25, 0.0, 8.5, "Counts have a mean error of 1.25: one per client every 8.5 rounds."),
        (
            0.0,
            0.125,
            8.0,
            "Counts are exact: one per client every 8 rounds. 12.5 % of the clients' rounds have no count.",
        ),
        (None, 1.0, None, "No counts were published."),
    ],
)
def test_published_counts_in_words(error, missing, window, said):
    counts = Analytics(release=(), count_error=error, missing_fraction=missing, mean_window=window)
    assert about_counts(counts) == said
