import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scenarios import console
from scenarios.cli import main


@pytest.fixture
def fedsim(tmp_path, monkeypatch, capsys):
    """Runs the command in this process, in an empty folder; lines about slow work never come."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "FIRST_LINE_S", float("inf"))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedsim", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return SimpleNamespace(status=caught.value.code, stdout=captured.out, stderr=captured.err)

    return run


@pytest.fixture
def chromium():
    """The system's Chromium; without one the test skips."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    places = ("/usr/bin/chromium", "/usr/bin/chromium-browser")
    found = next((place for place in places if Path(place).exists()), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
