"""Ray that cannot start: one line that says what to change."""

import os
from datetime import UTC, datetime

import pytest

from fedsim.core.errors import NotStartedError, UserError
from fedsim.grids.ray_start import check_ray, start_ray

IN_TIME = "Ray did not start in time: try again when this machine has less other work"


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)


def failing(monkeypatch, error):
    def fail(**_):
        raise error

    monkeypatch.setattr("ray.init", fail)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Exception("The current node timed out during startup. This could happen because …"), IN_TIME),
        (RuntimeError("Failed to start GCS.\nLast 0 lines"), r"Ray did not start: Failed to start GCS\.$"),
        (PermissionError(13, "Permission denied", "/x/ray"), "Ray did not start: /x/ray: Permission denied$"),
        (ValueError(""), "Ray did not start: ValueError$"),
    ],
)
def test_what_keeps_ray_from_starting_is_one_line(error, line, monkeypatch):
    failing(monkeypatch, error)
    with pytest.raises(NotStartedError, match=line):
        start_ray()


def test_other_exceptions_of_ray_are_not_hidden(monkeypatch):
    failing(monkeypatch, KeyError("a fault"))
    with pytest.raises(KeyError):
        start_ray()


def test_a_folder_without_room_for_sockets_is_named_before_ray_starts(monkeypatch):
    failing(monkeypatch, AssertionError("Ray was started"))
    monkeypatch.setenv("TMPDIR", "/tmp/" + "x" * 90)
    with pytest.raises(UserError, match=r"^TMPDIR is '/tmp/x+': Ray needs a folder whose path has at most"):
        start_ray()
    # A cluster that is there has its own folder.
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    check_ray()
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    check_ray()
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/" + "y" * 90)
    with pytest.raises(UserError, match=r"^RAY_TMPDIR is '/tmp/y+'"):
        check_ray()


def test_rays_own_check_of_sockets_draws_the_line_at_the_same_length(monkeypatch):
    from ray._private.utils import validate_socket_filepath

    for length in range(30, 60):
        folder = "/" + "x" * length
        monkeypatch.setenv("TMPDIR", folder)
        now = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S_%f")
        socket = f"{folder}/ray/session_{now}_{os.getpid()}/sockets/plasma_store"
        assert refuses(check_ray) == refuses(validate_socket_filepath, socket)


def refuses(check, *arguments):
    try:
        check(*arguments)
    except (UserError, OSError):
        return True
    return False
