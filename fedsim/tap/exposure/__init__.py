"""The alarm of a tap: how many clients the recording would expose, while the training still runs."""

from fedsim.tap.exposure.monitor import ExposureMonitor

__all__ = ["ExposureMonitor"]
