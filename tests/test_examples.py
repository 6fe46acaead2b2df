"""The examples run: scripts, notebooks, and a package with plug-ins that pip installs."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim as api
from scenarios.inventory import inventory

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted((EXAMPLES / "python").glob("*.py"))
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.stem)
def test_scripts_run(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebooks_run_and_their_outputs_are_kept_small(notebook, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    kept = nbformat.read(notebook, 4)
    assert notebook.stat().st_size < 100_000
    assert all(cell.outputs for cell in kept.cells if "print(" in cell.source or ".plot()" in cell.source)
    # The kernel is another process, which finds the packages where this one does.
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    book = nbformat.read(notebook, 4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    printed = [[o.text for o in cell.get("outputs", ()) if o.output_type == "stream"] for cell in book.cells]
    assert any(printed)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that pip has installed the example package into, without a network."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLES / "plugin", folder / "source")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", folder / "site", source], check=True, capture_output=True)
    return folder / "site"


def test_an_installed_package_offers_its_plug_ins(installed, scenario_file, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(installed))
    listed = inventory()
    assert listed["defences"]["signs"] == (
        "Send only the signs of an update, scaled by its mean magnitude. (from fedsim-signs)"
    )
    assert "(from fedsim-signs)" in listed["release of counts"]["capped"]
    chosen = {"defences": [{"name": "signs", "strength": 2.0}], "analytics.release": ["capped"]}
    run = api.run(scenario_file, out=tmp_path / "run", overrides=chosen, progress=False)
    assert 'name = "signs", strength = 2.0' in (tmp_path / "run/scenario.toml").read_text()
    assert [defence["name"] for defence in run.result.defences] == ["signs"]
    assert api.load_run(tmp_path / "run").scenario.defences[0].strength == 2.0
    with pytest.raises(api.UserError, match=r"defences\.0\.name is 'sings': expected"):
        api.load_scenario(scenario_file, {"defences": ["sings"]})
