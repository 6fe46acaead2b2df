"""The analytics section of a scenario."""

from pydantic import PositiveInt

from fedsim.settings import Settings


class AnalyticsSettings(Settings):
    """Every `window` rounds the operator asks each device how often it took part since it last answered."""

    window: PositiveInt = 10
