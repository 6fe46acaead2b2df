import sys
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
