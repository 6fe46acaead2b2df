"""The examples: Flower apps as users write them, plus three lines for a tap and four for secure sums."""

import importlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedsim.flower import SERVER_NODE_ID, enter_local_task
from fedsim.grids.inline import InlineGrid
from fedsim.grids.superlink import private_superlink

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples/flower").glob("*/pyproject.toml"))
CLIENTS = 8


def settings_of(project):
    return tomllib.loads(project.read_text())["tool"]["flwr"]["app"]


@pytest.fixture
def apps(monkeypatch):
    """Import the two apps of an example, and forget its modules afterwards."""
    loaded = []

    def load(project):
        monkeypatch.syspath_prepend(str(project.parent))
        components = settings_of(project)["components"]
        modules = [
            importlib.import_module(components[k].partition(":")[0]) for k in ("serverapp", "clientapp")
        ]
        loaded.append(modules[0].__name__.partition(".")[0])
        return [module.app for module in modules]

    yield load
    for package in loaded:
        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            del sys.modules[name]


@pytest.mark.parametrize("project", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_runs_and_is_audited(apps, fedsim, project, tmp_path):
    server_app, client_app = apps(project)
    config = settings_of(project)["config"] | {"audit-log": str(tmp_path / "log"), "num-server-rounds": 8}
    random.seed(2)
    enter_local_task()
    context = Context(run_id=1, node_id=SERVER_NODE_ID, node_config={}, state=RecordDict(), run_config=config)
    server_app(InlineGrid(client_app, CLIENTS, run_config=config), context)
    done = fedsim("audit", tmp_path / "log", "--no-alternatives", "--solver", "projection")
    assert (done.status, done.stderr) == (0, "")
    found = json.loads((tmp_path / "log/audit/result.json").read_text())
    assert found["rounds"] == 8  # a void round would not be recorded
    assert found["score"]["clients"] == found["clients"]["named"]


@pytest.mark.parametrize("project", EXAMPLES, ids=lambda path: path.parent.name)
def test_a_tap_is_three_lines(project):
    sources = [path.read_text() for path in project.parent.rglob("*.py")]
    marks = [mark for source in sources for mark in re.findall(r"# .*\btap: (\d)", source)]
    assert sorted(marks) == ["1", "2", "3"]
    assert sum(line.count("Tap") for source in sources for line in source.splitlines()) == 2


@pytest.mark.parametrize("project", EXAMPLES, ids=lambda path: path.parent.name)
def test_secure_sums_are_four_lines(project):
    """Two on the server and two on the client, of which one was there before."""
    sources = {path.name: path.read_text() for path in project.parent.rglob("*.py")}
    marks = {name: re.findall(r"# .*\bsecure: (\d)", source) for name, source in sources.items()}
    assert {name: found for name, found in marks.items() if found} == {
        "client_app.py": ["1", "2"],
        "server_app.py": ["3", "4"],
    }


def flwr_run(superlink, home, run_config, *arguments):
    """Start the example with a strategy of its own, as a person does it; the number of the run."""
    (project,) = (path.parent for path in EXAMPLES if path.parent.name == "custom_strategy")
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "private"\n[superlink.private]\n'
        f'address = "{superlink.address}"\ninsecure = true\n'
    )
    submitted = subprocess.run(
        [
            *(Path(sysconfig.get_path("scripts")) / "flwr", "run", project),
            *("--format", "json", "--run-config", run_config, *arguments),
        ],
        env={**os.environ, "FLWR_HOME": str(home), "FLWR_DISABLE_UPDATE_CHECK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(json.loads(submitted.stdout)["run-id"])


@pytest.mark.slow
def test_flwr_run_records(fedsim, monkeypatch, tmp_path):
    """`flwr run`, with nodes that Flower simulates."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    log = tmp_path / "log"
    with private_superlink(nodes=0) as superlink:
        config = f'audit-log="{log}" num-server-rounds=8'
        run = flwr_run(superlink, tmp_path / "flower", config, "--federation-config", "num-supernodes=8")
        superlink.wait(run)
    done = fedsim("audit", log, "--no-alternatives", "--json")
    assert (done.status, json.loads(done.stdout)["rounds"]) == (0, 8)


@pytest.mark.slow
def test_rounds_go_on_after_kills(fedsim, monkeypatch, tmp_path):
    """A SuperLink with four SuperNodes and secure sums: the last SuperNode is killed, then the server app."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    log = tmp_path / "log"

    def cohorts():
        path = log / "transcript/rounds.csv"
        return (
            [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]] if path.exists() else []
        )

    with private_superlink(nodes=4) as superlink:
        servers: list[int] = []

        def kill():
            if cohorts() and "supernode-3" in superlink.processes:
                os.killpg(superlink.processes.pop("supernode-3").pid, signal.SIGKILL)
            if len(cohorts()) > 1 and not servers:
                servers.extend(server_apps(superlink.processes["superlink"].pid))
                os.kill(servers[0], signal.SIGKILL)
                raise ServerKilledError

        config = f'audit-log="{log}" num-server-rounds=9 fraction-train=1.0'
        with pytest.raises(ServerKilledError):
            superlink.wait(flwr_run(superlink, tmp_path / "flower", config), meanwhile=kill)
        before = len(cohorts())
        config = config.replace("=9", "=1")
        superlink.wait(flwr_run(superlink, tmp_path / "flower", config))
    assert (cohorts()[0], cohorts()[-1], len(cohorts())) == (4, 3, before + 1)
    done = fedsim("audit", log, "--no-alternatives", "--json")
    found = json.loads(done.stdout)
    assert (done.status, found["rounds"], found["clients"]["named"]) == (0, before + 1, 4)


class ServerKilledError(Exception):
    """The server app is killed: nobody waits for the end of its run."""


def server_apps(superlink):
    """Process ids of the server apps that a SuperLink has started, below its executor."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            parents[int(path.name)] = parent, any(word.endswith(b"flwr-serverapp") for word in words)
    return [
        pid
        for pid, (parent, is_server) in parents.items()
        if is_server and parents.get(parent, (0, False))[0] == superlink
    ]
