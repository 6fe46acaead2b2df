"""The version of this installation."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "fedsim-audit"
"""The name that installers know: `fedsim` on PyPI is somebody else's project."""
_EARLIER = "fedsim"
"""The name of installations before 0.3."""


def installed_version() -> str:
    """The version of the installed distribution."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return version(_EARLIER)
