"""The Python API: the same files as the command line, and results for pandas, plots and notebooks."""

import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import fedsim as api
from analytics import windowed_counts
from scenarios.sweep.sweep import Sweep
from scenarios.threads import one_thread

REPEATABLE = ("scenario.toml", "counts.csv", "transcript", "truth", "recovery.npz")
"""Files of a run that hold no seconds."""

SWEEP = """
title = "Two seeds"
base = "small.toml"
[vary]
seed = [1, 2]
"""
EVALUATION = """
title = "One change"
base = "small.toml"
seeds = 1
[[defences]]
name = "two epochs"
set.clients.local_epochs = 2
"""


def content(folder, names=REPEATABLE):
    files = [file for name in names for file in sorted([folder / name, *(folder / name).rglob("*")])]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


def test_importing_it_is_cheap():
    code = (
        "import fedsim, sys; print([m for m in ('numpy', 'torch', 'pydantic', 'flwr') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_exported_name_is_there():
    assert set(api.__all__) == set(api._HOMES)
    assert all(getattr(api, name).__doc__ for name in api.__all__)
    assert {"run", "sweep", "UserError"} <= set(dir(api))
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        getattr(api, "rum")  # noqa: B009


def test_a_call_leaves_the_files_of_the_command(fedsim, scenario_file, tmp_path):
    assert fedsim("run", scenario_file, "--set", "seed=8", "--out", "command").status == 0
    found = api.run(scenario_file, out="call", overrides={"seed": 8}, progress=False)
    assert content(tmp_path / "command") == content(tmp_path / "call")
    assert found.result.seed == found.scenario.seed == 8
    assert found.report.exists()

    table = found.to_pandas()
    assert table["disaggregation.exact_fraction"].tolist() == [found.result.disaggregation.exact_fraction]
    axes = Figure().subplots()
    assert found.plot(axes) is axes and len(axes.patches) == 6
    assert "exact columns" in found._repr_html_()

    again = api.load_run("call")
    assert again.result == found.result
    other = api.attack(again, {"attack.solver": "highs"}, out="other", progress=False)
    assert other.recovery.solver == "highs" and found.recovery.solver != "highs"
    assert fedsim("attack", "command", "--set", "attack.solver=highs", "--force").status == 0
    assert content(tmp_path / "command") == content(tmp_path / "other")


def test_mistakes_are_user_errors_and_leave_nothing(scenario_file, tmp_path, finished_run):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(api.UserError, match=r"clients\.lr"):
        api.run(scenario_file, out=tmp_path / "x", overrides={"clients.lr": "fast"})
    with pytest.raises(api.UserError, match="expected a folder, because this scenario has no file name"):
        api.run(api.load_scenario(scenario_file))
    with pytest.raises(api.UserError, match="--engine cloud: expected inline or ray"):
        api.run(scenario_file, engine="cloud")
    with pytest.raises(api.UserError, match=r"only attack\.\* can change after the training"):
        api.attack(finished_run.path, {"seed": 9})
    with pytest.raises(api.UserError, match="is not a finished run"):
        api.load_run(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_sweeps_and_evaluations(fedsim, scenario_file, tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    found = api.sweep("sweep.toml", overrides={"federation.rounds": 20}, workers=1, progress=False)
    assert found.to_pandas()["seed"].tolist() == [1, 2]
    assert found.page.exists() and "Two seeds · federation.rounds=20" in found._repr_html_()
    assert found.plot(Figure().subplots()).get_xlabel() == "seed"
    assert (
        fedsim(
            "sweep", "sweep.toml", "--set", "federation.rounds=20", "--out", "command", "--workers", 1
        ).status
        == 0
    )
    # The file that the sweep keeps gives the same points again.
    kept = Sweep.load(tmp_path / "command/sweep.toml")
    assert [point.name for point in kept.points] == [point.name for point in found.plan.points]
    for point in found.plan.points:
        assert content(tmp_path / "command/points" / point.name) == content(
            tmp_path / "runs/sweep/points" / point.name
        )

    (tmp_path / "evaluation.toml").write_text(EVALUATION)
    evaluated = api.evaluate("evaluation.toml", workers=1, progress=False)
    assert set(evaluated.to_pandas()["defence"]) == {"none", "two epochs"}
    assert len(evaluated.sentences) == 1 and set(evaluated.verdicts) == {"none", "two epochs"}
    assert evaluated.plot(Figure().subplots()).get_ylabel() == "test accuracy"
    assert "two epochs" in evaluated._repr_html_() and evaluated.page.exists()


def planted(seed=0, clients=6, rounds=40, dim=30):
    rng = np.random.default_rng(seed)
    P = (rng.random((rounds, clients)) < 0.3).astype(np.uint8)
    return P, P.astype(np.float32) @ rng.normal(size=(clients, dim)).astype(np.float32)


def test_arrays_can_be_disaggregated():
    P, sums = planted()
    found = api.disaggregate(sums, windowed_counts(P, window=4), progress=False)
    assert np.array_equal(found.participation, P)
    assert found.to_pandas()["outcome"].isin(["proved", "consistent"]).all()
    assert found.updates.shape == (6, 30)
    assert found.plot(Figure().subplots()).get_ylabel() == "round"
    assert "consistent" in found._repr_html_()
    with pytest.raises(api.UserError, match="needs counts"):
        api.disaggregate(sums, solver="projection", progress=False)
    with pytest.raises(api.UserError, match="expected a table"):
        api.disaggregate(sums[0])


def test_logs_can_be_audited(fedsim, tmp_path):
    P, sums = planted()
    np.save(tmp_path / "sums.npy", sums)
    windowed_counts(P, window=4).write_csv(tmp_path / "counts.csv")
    found = api.audit(aggregates="sums.npy", counts="counts.csv", out="call", progress=False)
    assert (found.verdict, found.findings.separated) == ("exposed", 6)
    assert len(found.to_pandas()) == 6 and "consistent" in found._repr_html_()
    done = fedsim("audit", "--aggregates", "sums.npy", "--counts", "counts.csv", "--out", "command")
    assert done.status == 0, done.stderr
    names = ("clients.csv", "recovery.npz")
    assert content(tmp_path / "call", names) == content(tmp_path / "command", names)


def test_settings_can_be_forecast(tmp_path):
    page = tmp_path / "page.html"
    found = api.forecast(
        clients=4, window=2, rate=0.4, alternatives={"rarer": {"window": 8}}, out=page, progress=False
    )
    assert set(found.to_pandas()["setting"]) == {"as it is", "rarer"}
    assert page.exists() and len(found.sentences) == 1
    assert "half, at best" in found._repr_html_()
    with pytest.raises(api.UserError, match="--alternative rarer: window is 0"):
        api.forecast(clients=4, alternatives={"rarer": {"window": 0}})


def test_reproducing_needs_a_name_that_there_is():
    with pytest.raises(api.UserError, match=r"expected a name: .*table1"):
        api.reproduce()
    with pytest.raises(api.UserError, match="--budget much: expected quick or full"):
        api.reproduce("table1", budget="much")


def test_one_thread_is_used_and_the_callers_number_restored(monkeypatch):
    from threadpoolctl import threadpool_info, threadpool_limits

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threadpool_limits(2):
        with one_thread():
            assert {library["num_threads"] for library in threadpool_info()} == {1}
        assert {library["num_threads"] for library in threadpool_info()} != {1}
    assert "OMP_NUM_THREADS" not in os.environ
