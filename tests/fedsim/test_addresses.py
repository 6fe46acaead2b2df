"""Addresses where nobody answers: one line within seconds, whatever stands there."""

import http.server
import socket
import threading

import pytest

from fedsim.core.errors import RunFailedError, UserError
from fedsim.grids import ray_address, superlink
from fedsim.grids.ray_address import check_ray_address
from fedsim.grids.superlink import existing_superlink


@pytest.fixture
def nobody():
    """A port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


@pytest.fixture
def silent():
    """A port where somebody listens and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def web_server():
    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    assert superlink._ANSWER_LIMIT_S + ray_address._LIMIT_S <= 30
    monkeypatch.setattr(superlink, "_ANSWER_LIMIT_S", 0.5)
    monkeypatch.setattr(ray_address, "_LIMIT_S", 0.5)
    for name in ("NO_PROXY", "no_proxy"):  # the code under test sets them
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("where", ["nobody", "silent", "web_server"])
def test_no_superlink_is_one_line(where, request, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    address = request.getfixturevalue(where)
    with (
        pytest.raises(RunFailedError, match=f"--superlink {address}: no SuperLink answers there"),
        existing_superlink(address),
    ):
        pytest.fail("nobody is there")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["nobody", "silent", "web_server"])
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_no_ray_cluster_is_one_line(where, scheme, request, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", scheme + request.getfixturevalue(where))
    with pytest.raises(RunFailedError, match=r"RAY_ADDRESS is .* no Ray cluster answers there"):
        check_ray_address()


def test_what_is_no_address():
    for wrong in ("somewhere", "host:", ":6379", "host:port", "host:0", "ray://host"):
        with pytest.raises(UserError, match=r"expected HOST:PORT, ray://HOST:PORT, auto or local"):
            check_ray_address(wrong)
    for found_by_ray in ("", "auto", "local"):
        check_ray_address(found_by_ray)
