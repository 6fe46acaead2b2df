"""Cheats find the truth where it can be read, and find nothing in the attack process."""

import os
import pickle

import numpy as np
import pytest

from attacks.process.channel import Kind
from attacks.process.requests import Disaggregate, Session
from attacks.settings import AttackSettings
from attacks.view import AttackerView
from fedsim.core.seeds import Stage, stream_seed
from fedsim.trusted.truth import Truth
from scenarios.run.attack_process import _answer, attack_process
from tests.attacks.process import cheats

SEED = 3
"""The seed of `finished_run`'s scenario, which an attack must not be able to find."""


@pytest.fixture(scope="module")
def process(finished_run):
    return attack_process(AttackSettings(), finished_run.path)


def prepared(run, seed):
    """What an honest attack on the run is given, and the open file that goes with it."""
    view = AttackerView.load(run.transcript, run.counts)
    return Disaggregate.of(AttackSettings(), view, seed)


def sealed(process, cheat, file):
    """What a cheat finds in the attack process."""
    with process.session() as session:
        session._channel.send(Kind.REQUEST, pickle.dumps(cheat), [file])
        return _answer(session._channel, lambda *_: None)


@pytest.mark.parametrize("cheat", cheats.CHEATS)
def test_a_cheat_finds_nothing_in_the_attack_process(cheat, finished_run, process):
    truth = Truth.load(finished_run.truth)
    honest, file = prepared(finished_run, stream_seed(SEED, Stage.ATTACK))
    arrays, values = sealed(process, cheat(honest, truth.participation.shape), file)
    os.close(file)
    guess = arrays.get("participation")
    assert guess is None or not np.array_equal(guess, truth.participation), values


@pytest.mark.parametrize(
    "cheat",
    [cheats.FromTheMappedFiles, cheats.FromTheFrames, cheats.FromTheHeap],
)
def test_the_same_cheat_works_beside_the_truth(cheat, finished_run):
    """Without the attack process the truth is found: the test above tests something."""
    truth = Truth.load(finished_run.truth)
    honest, file = prepared(finished_run, 0)
    arrays, _ = cheat(honest, truth.participation.shape).answer(Session(), (file,), lambda *_: None)
    np.testing.assert_array_equal(arrays["participation"], truth.participation)


@pytest.mark.parametrize("cheat", [cheats.FromTheGenerator, cheats.FromTheCohortSizes])
def test_the_same_cheat_finds_a_schedule_that_the_seed_gives_away(cheat, finished_run):
    """A schedule straight from the seed, as NumPy would draw it, is found at once."""
    truth = Truth.load(finished_run.truth)
    drawn = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(4,)))
    P = (drawn.random(truth.participation.shape) < 0.3).astype(np.uint8)
    honest, file = prepared(finished_run, SEED)
    honest.view.transcript.cohort_sizes[:] = P.sum(axis=1)
    arrays, _ = cheat(honest, P.shape).answer(Session(), (file,), lambda *_: None)
    np.testing.assert_array_equal(arrays["participation"], P)


def test_a_mapped_view_knew_its_path(finished_run):
    """The view that scoring loads has a file name; what reaches an attack has none."""
    view = AttackerView.load(finished_run.transcript, finished_run.counts)
    assert getattr(view.transcript.aggregates, "filename", None) is not None
    honest, file = prepared(finished_run, 0)
    assert getattr(honest.sums.array(file), "filename", None) is None


def test_a_reply_cannot_carry_code(process):
    """Replies are arrays and JSON: unpickling one would run an attack's code where the truth is."""
    from attacks.process.channel import packed, unpacked

    with pytest.raises(ValueError, match="pickle"):
        packed({"code": np.array([object()])}, {})
    import io

    buffer = io.BytesIO()
    np.savez(buffer, _values=np.array("{}"), code=np.array([object()], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        unpacked(buffer.getvalue())
