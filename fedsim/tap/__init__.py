"""The tap: records in anybody's Flower app what its server receives, for `fedsim audit`.

A user's app imports this package. So it needs neither torch nor a scenario, and it imports nothing from
`analytics`, `attacks` and `scenarios`: the app may have folders of these names.
"""

from fedsim.tap.exposure import ExposureMonitor
from fedsim.tap.strategy import Tap

__all__ = ["ExposureMonitor", "Tap"]
