"""Plug-ins of the user's own, from a module in the current folder: one of every kind, through a whole run."""

import shutil
import sys

import pytest

import fedsim as api
from attacks.disaggregation.solvers import AbstractSolver, Solver
from fedsim.core.plugins import Extensible, extension, users_modules
from fedsim.core.settings import members
from fedsim.defences import AnyDefence
from scenarios.inventory import CHOICES, plug_ins_in
from scenarios.sweep.code import code_for, point_code, training_code

MODULE = '''
"""One plug-in of every kind."""
from dataclasses import replace
from typing import ClassVar

import numpy as np
from torch import nn

import beside_KEY
from analytics.release import Policy
from attacks.disaggregation.solvers import AbstractSolver, Projection
from attacks.inference import InferenceAttack
from attacks.inference.attack import Guesses, unwatched
from fedsim.data import Iid, Partition, Source, Synthetic
from fedsim.defences import UpdateDefence
from fedsim.models import Architecture
from fedsim.server.strategies import FedAvg, ServerStrategy
from fedsim.tasks.images import ImageClassification
from fedsim.trusted.schedule import ParticipationSettings


class Signs(UpdateDefence):
    """Send only the signs of an update."""

    strength: float = 1.0

    def on_update(self, update, rng):
        return (self.strength * np.sign(update) * np.abs(update).mean()).astype(np.float32)


class Capped(Policy):
    """Publish nothing above a cap."""

    most: int = beside_KEY.MOST

    def apply(self, counts, rng):
        return replace(counts, count=np.where(counts.count > self.most, np.nan, counts.count))


class EveryOther(ParticipationSettings):
    """Clients take turns at random, half of them in a round."""

    def draw(self, rounds, clients, rng):
        return rng.random((rounds, clients)) < 0.5


class Few(Source):
    """A few synthetic images."""

    task_type: ClassVar = ImageClassification
    partition: Partition = Iid()

    def load(self, seed):
        return Synthetic(train_images=120, test_images=30).load(seed)


class Straight(Architecture):
    """One linear layer."""

    @classmethod
    def takes(cls, inputs):
        return True

    def build(self, task):
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, task.outputs))


class Mine(AbstractSolver):
    """Projection, or a failure."""

    needs_counts: ClassVar[bool] = True
    models_noise: ClassVar[bool] = False
    can_prove: ClassVar[bool] = True
    fail: bool = False

    def solve(self, instance, *, rng, progress):
        if self.fail:
            raise KeyError("on purpose")
        return Projection().solve(instance, rng=rng, progress=progress)


class Peek(Mine):
    """Reads a file first."""

    file: str

    def solve(self, instance, *, rng, progress):
        open(self.file, "rb").close()
        return super().solve(instance, rng=rng, progress=progress)


class Uniform(InferenceAttack):
    """All classes are equally frequent."""

    kind: ClassVar = "label_inference"

    def infer(self, evidence, knowledge, *, rng, watch=unwatched):
        return Guesses(np.full((len(evidence.updates), knowledge.task.outputs), 0.1, np.float32))


class Fixed(Signs):
    name: str = "fixed"


class Plain(ServerStrategy):
    """FedAvg by another name."""

    def build(self):
        return FedAvg().build()


class Nothing:
    pass
'''
SCENARIO = """
title = "Plug-ins"
seed = 5
defences = [{ name = "KEY:Signs", strength = 2.0 }]
data = "KEY:Few"
model = "KEY:Straight"
[clients]
dataset_size = 16
batch_size = 16
[federation]
clients = 5
rounds = 24
participation = "KEY:EveryOther"
[analytics]
window = 4
release = ["KEY:Capped"]
[attack]
solver = "KEY:Mine"
inference = [{ name = "KEY:Uniform", targets = 2 }]
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The name of a module with plug-ins in the current folder; other tests do not see it."""
    key = f"mine_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{key}.py").write_text(MODULE.replace("KEY", key))
    (tmp_path / f"beside_{key}.py").write_text("MOST = 3\n")
    (tmp_path / "scenario.toml").write_text(SCENARIO.replace("KEY", key))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield key
    sys.modules.pop(key, None)
    sys.modules.pop(f"beside_{key}", None)


def test_a_run_with_plug_ins_of_every_kind(fedsim, mine, tmp_path):
    found = api.run("scenario.toml", out="run", progress=False)
    kept = (tmp_path / "run/scenario.toml").read_text()
    for name in ("Few", "Straight", "EveryOther", "Signs", "Capped", "Mine", "Uniform"):
        assert f'name = "{mine}:{name}"' in kept
    assert found.scenario.defences[0].strength == 2.0
    assert found.recovery.confinement
    assert found.result.defences[0]["name"] == f"{mine}:Signs"
    assert set(found.result.scores) == {"Uniform"}
    before = (tmp_path / "run/recovery.npz").read_bytes()

    done = fedsim("attack", "run", "--json")
    assert done.status == 0, done.stderr
    assert (tmp_path / "run/recovery.npz").read_bytes() == before
    assert fedsim("report", "run").status == 0
    assert fedsim("run", "scenario.toml", "--out", "run", "--resume").status == 0
    # A failure in the confined process is the user's to mend.
    done = fedsim(
        "attack", "run", "--force", "--set", f'attack.solver={{ name = "{mine}:Mine", fail = true }}'
    )
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert f"{mine}.py, line " in done.stderr and "KeyError: 'on purpose'" in done.stderr
    assert (tmp_path / "run/recovery.npz").read_bytes() == before


def test_a_solver_cannot_open_the_truth_of_a_run_or_of_its_copy(mine, finished_run, tmp_path):
    shutil.copytree(finished_run.path, tmp_path / "run")
    for folder in ("run", "copy"):
        file = tmp_path / folder / "truth" / "participation.npy"
        peek = {"attack.solver": {"name": f"{mine}:Peek", "file": str(file)}}
        with pytest.raises(api.UserError, match=rf"{mine}\.py, line \d+: PermissionError"):
            api.attack("run", peek, out="copy", progress=False)
        assert not (tmp_path / "copy").exists()
    allowed = {"attack.solver": {"name": f"{mine}:Peek", "file": str(tmp_path / f"{mine}.py")}}
    assert api.attack("run", allowed, out="copy", progress=False).recovery.confinement


def test_they_are_listed(fedsim, mine):
    found = plug_ins_in(mine)
    assert found["defences"][f"{mine}:Signs"] == "Send only the signs of an update."
    assert set(found) >= {"data sets", "models", "participation", "defences", "solvers", "inference attacks"}
    assert f"{mine}:Mine  Projection, or a failure." in fedsim("list", mine).stdout
    assert "defines no plug-in" in fedsim("list", f"beside_{mine}").stderr


def test_their_sources_count_as_code(mine, tmp_path):
    settings = api.load_scenario("scenario.toml")
    assert users_modules(settings) == {mine}
    before = code_for(settings), training_code(settings)
    assert before[0] == point_code(settings) and before[0].startswith(before[1].rpartition("+")[0])
    (tmp_path / f"beside_{mine}.py").write_text("MOST = 2\n")
    assert code_for(settings) != before[0]
    (tmp_path / f"beside_{mine}.py").write_text("MOST = 3  # as before\n")
    assert code_for(settings) == before[0]
    ours = settings.changed({"defences": [], "data": "synthetic", "model": "mlp", "attack": {}})
    ours = ours.changed({"analytics.release": [], "federation.participation": "bernoulli"})
    assert users_modules(ours) == set()
    attacked = ours.changed({"attack.solver": f"{mine}:Mine"})
    assert training_code(attacked) == code_for(ours) != point_code(attacked)
    assert code_for(attacked) == f"{training_code(attacked)}, {point_code(attacked)}"
    custom = ours.changed({"model": {"name": "custom", "factory": f"{mine}:Straight"}})
    assert users_modules(custom) == {mine}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("KEY:Sings", r"defences: KEY has no 'Sings'"),
        ("nowhere:Signs", r"defences: there is no module 'nowhere', neither where Python looks nor in "),
        (
            "KEY:Nothing",
            r"defences: KEY:Nothing: expected a class that extends fedsim\.defences\.defence\.Defence",
        ),
        ("KEY:Mine", r"defences: KEY:Mine: expected a class that extends"),
        ("KEY:", r"expected module:Class, such as"),
        ("fedsim.defences:UpdateDefence", r"it lacks what .* asks for: on_update"),
        ("fedsim.defences:Clipping", r"its field `name` is fixed"),
        ("__main__:Signs", r"put the code into a file of its own"),
        (
            {"name": "KEY:Signs", "strength": "much"},
            r"defences\.0\.strength is 'much': expected a valid number",
        ),
        ({"name": "KEY:Signs", "weak": 1}, r"defences\.0\.weak: unknown key, expected one of name, strength"),
    ],
)
def test_mistakes_are_one_line(mine, name, message):
    given = (
        {**name, "name": name["name"].replace("KEY", mine)}
        if isinstance(name, dict)
        else name.replace("KEY", mine)
    )
    with pytest.raises(api.UserError, match=message.replace("KEY", mine)) as caught:
        api.load_scenario("quickstart", {"defences": [given]})
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code, reason in (
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(3)", r"sys\.exit\(3\)"),
        ("x =", "line 1"),
    ):
        (tmp_path / "broken_plug_in.py").write_text(code)
        with pytest.raises(api.UserError, match=f"defences: broken_plug_in cannot be imported: .*{reason}"):
            api.load_scenario("quickstart", {"defences": ["broken_plug_in:Signs"]})


def test_every_kind_of_plug_in_has_its_own_group():
    kinds = [kind for union in CHOICES.values() if (kind := extension(union)) is not None]
    assert len({kind.group for kind in kinds}) == len(kinds) == 8
    assert extension(Solver) == Extensible("solvers", AbstractSolver)
    assert all(kind.base for kind in kinds)
    for member in members(AnyDefence).values():
        assert member.model_fields["name"].annotation is not str
