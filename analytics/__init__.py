"""What the operator's telemetry collects from devices and publishes: counters, windows, reports."""

from analytics.report import ParticipationReport, windowed_counts

__all__ = ["ParticipationReport", "windowed_counts"]
