"""The local page over all runs of a folder."""

import http.client
import json
import shutil
import threading
import time

import pytest
import uvicorn

from fedsim.core.locks import alone_in
from scenarios.view.catalogue import entries
from scenarios.view.server import HOST, application


@pytest.fixture
def folder(finished_run, tmp_path):
    """A folder with a finished run, one that was interrupted, and files of other people."""
    root = tmp_path / "runs"
    shutil.copytree(finished_run.path, root / "group/done")
    shutil.copytree(finished_run.path, root / "half")
    for name in ("result.json", "report.html", "recovery.npz"):
        (root / "half" / name).unlink()
    rounds = root / "half/transcript/rounds.csv"
    rounds.write_text("".join(rounds.read_text().splitlines(keepends=True)[:13]))
    (root / "broken/transcript").mkdir(parents=True)
    (root / "broken/scenario.toml").write_text("title = ")
    (tmp_path / "report.html").write_text("secret")
    (root / "link").mkdir()
    (root / "link/report.html").symlink_to(tmp_path / "report.html")
    return root


@pytest.fixture
def port(folder):
    """The port of a server for the folder."""
    config = uvicorn.Config(
        application(folder), host=HOST, port=0, log_level="error", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0)  # lets the other thread work
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def ask(port, path, method="GET", host="127.0.0.1"):
    connection = http.client.HTTPConnection(HOST, port)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_entries_say_what_they_are_and_how_far(folder):
    found = {entry.path: entry for entry in entries(folder)}
    assert set(found) == {"group/done", "half", "broken"}
    assert (found["group/done"].state, found["group/done"].link) == ("finished", "group/done/report.html")
    assert found["group/done"].figures["attack"] >= found["group/done"].figures["guess"]
    assert (found["half"].state, found["half"].progress, found["half"].link) == ("interrupted", 0.5, None)
    assert found["broken"].state == "unreadable"


def test_a_run_that_a_process_works_on_is_under_way(folder, monkeypatch):
    monkeypatch.setattr("scenarios.view.catalogue.is_busy", lambda path: path.name == "half")
    (half,) = (entry for entry in entries(folder) if entry.path == "half")
    assert half.state == "training"


def test_looking_at_a_lock_does_not_take_it(folder):
    """A lock of this very process is not seen by the system, so only the other direction can be tested."""
    from fedsim.core.locks import is_busy

    assert not is_busy(folder)
    with alone_in(folder / "half"):
        pass
    assert not is_busy(folder / "half")


def test_the_page_and_what_it_asks_for(port):
    status, page = ask(port, "/")
    assert status == 200
    assert "group/done" in page
    assert "connect-src 'self'" in page
    status, live = ask(port, "/live")
    assert status == 200
    assert "interrupted" in json.loads(live)["rows"]
    assert ask(port, "/pages/group/done/report.html")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/pages/../report.html",
        "/pages/%2e%2e/report.html",
        "/pages/group/../../report.html",
        "/pages//etc/passwd",
        "/pages/link/report.html",
        "/pages/group/done/result.json",
        "/pages/group/done/truth/answers.csv",
        "/pages/group/done/scenario.toml",
        "/pages/group",
        "/nothing",
    ],
)
def test_nothing_but_pages_of_the_folder_is_served(port, path):
    status, answer = ask(port, path)
    assert status == 404
    assert "secret" not in answer


def test_it_is_read_only_and_answers_to_its_own_name_only(port):
    assert ask(port, "/", method="POST")[0] == 405
    assert ask(port, "/", method="DELETE")[0] == 405
    assert ask(port, "/", host="evil.example")[0] == 400
    assert ask(port, "/", host=f"localhost:{port}")[0] == 200


def test_mistakes_are_one_line(fedsim, tmp_path):
    done = fedsim("view", "nowhere")
    assert (done.status, done.stderr) == (2, "fedsim: nowhere: there is no such folder\n")


def test_in_a_browser_it_can_be_filtered_and_follows_a_run(port, folder, chromium):
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    wrong: list = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    requests: list = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"http://{HOST}:{port}/")
    page.locator(".chart[data-drawn] svg").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.fill("#filter", "interrupted")
    assert page.locator("#rows tr:visible").count() == 1
    # The run goes on: two rounds more reach the page without a reload, and the filter stays.
    with (folder / "half/transcript/rounds.csv").open("a") as rounds:
        rounds.write("12,1,1.0\n13,1,1.0\n14,1,1.0\n15,1,1.0\n16,1,1.0\n17,1,1.0\n")
    page.get_by_text("75 %").wait_for()
    assert page.locator("#rows tr:visible").count() == 1
    page.fill("#filter", "")
    page.get_by_role("link", name="group/done").click()
    page.locator(".chart[data-drawn] svg").first.wait_for()
    assert not wrong
    assert all(url.startswith((f"http://{HOST}:{port}/", "data:")) for url in requests)
