"""Inference attacks from the scenario file to the result: the columns, the files, and who may see what."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from attacks.disaggregation import Recovery
from attacks.inference import Inference
from attacks.inference.attack import Kind
from attacks.view import AttackerView
from fedsim.core.errors import UserError
from fedsim.core.settings import members
from fedsim.devices.trainer import Trainer
from fedsim.records import Transcript
from fedsim.trusted.truth import Truth
from scenarios.run.attack_process import attack_process
from scenarios.run.directory import RunDirectory
from scenarios.run.inference.columns import Columns, recovered_evidence, single_update
from scenarios.run.inference.entries import entries
from scenarios.run.inference.findings import Findings
from scenarios.run.inference.images import InversionJudge
from scenarios.run.inference.judges import JUDGES
from scenarios.run.inference.properties import PropertyJudge
from scenarios.run.inference.run import InferenceRun
from scenarios.run.runner import (
    attack_run,
    honest_part,
    publish,
    read_result,
    run_scenario,
    train_run,
    write_report,
)
from scenarios.run.scenario import load_scenario
from scenarios.run.server import sent_models
from scenarios.run.world import World
from tests.conftest import SMALL_SCENARIO
from tests.helpers.runs import reseal

ATTACKS = (
    "attack.inference=[{ name = 'label_inference', cohorts = [1, 3] }, { name = 'analytic', targets = 2 }]"
)
WARM = "attack.inference=[{ name = 'property_inference', property = 'warm' }]"
COLUMNS = {"aggregate", "disaggregated", "oracle"}


@pytest.fixture(scope="module")
def inferred(finished_run, tmp_path_factory):
    """The suite's finished run, attacked again with inference."""
    folder = tmp_path_factory.mktemp("inferred") / "run"
    shutil.copytree(finished_run.path, folder)
    directory = RunDirectory.open(folder)
    scenario, honest = load_scenario(directory.scenario, [ATTACKS]), honest_part(directory)
    attack_run(scenario, directory, honest)
    return directory


@pytest.fixture
def inferred_copy(inferred, tmp_path):
    shutil.copytree(inferred.path, tmp_path / "run")
    return RunDirectory.open(tmp_path / "run")


def test_results_stand_in_columns_beside_their_baselines(inferred):
    scores = read_result(inferred).scores
    labels, images = scores["label_inference"], scores["analytic"]
    assert set(dict(labels.tv)) == {*COLUMNS, "prior"}
    assert set(labels.tv_by_cohort) == {"1", "3"}
    assert labels.tv.disaggregated == pytest.approx(labels.tv.oracle, abs=0.01)
    assert labels.tv.disaggregated < 0.5 * labels.tv.aggregate
    assert labels.tv.aggregate < labels.tv.prior
    for figure in ("psnr_db", "psnr_db_best", "psnr_db_worst", "ssim"):
        assert set(dict(getattr(images, figure))) == {*COLUMNS, "grey"}
    assert images.psnr_db_worst.oracle <= images.psnr_db.oracle <= images.psnr_db_best.oracle
    assert (images.clients, images.resolved) == (2, 2)
    assert set(images.seconds) == set(images.iterations) == COLUMNS


def test_files_hold_all_that_the_report_needs(inferred_copy):
    before = inferred_copy.report.read_text()
    assert "analytic" in before
    inferred_copy.report.unlink()
    write_report(inferred_copy)
    assert inferred_copy.report.read_text() == before


def test_the_truth_cannot_be_reached(inferred_copy):
    """Everything true turned upside down beside the same view: the guesses stay, the score moves."""
    before = {key: Findings.load(inferred_copy, key) for key in ("label_inference", "analytic")}
    truth = Truth.load(inferred_copy.truth)
    opposite = -np.array(truth.updates)[::-1]
    Truth(participation=truth.participation, updates=opposite).save(inferred_copy.truth)
    scenario = load_scenario(inferred_copy.scenario)
    attack_run(scenario, inferred_copy, honest_part(inferred_copy))
    for key, old in before.items():
        new = Findings.load(inferred_copy, key)
        np.testing.assert_array_equal(new.guesses["disaggregated"], old.guesses["disaggregated"])
        assert not np.array_equal(new.guesses["oracle"], old.guesses["oracle"])


def test_runs_that_share_a_training_keep_their_own_comparison(inferred, tmp_path):
    """As the points of a sweep: the truth of the training is one, what guesses are held against is not."""
    saved = Findings.load(inferred, "label_inference")
    runs = [RunDirectory.create(tmp_path / name, replace=False) for name in ("all", "two")]
    for run, clients in zip(runs, (6, 2), strict=True):
        run.truth.symlink_to(inferred.truth)
        shares = {**saved.truth, "shares": saved.truth["shares"][:clients]}
        replace(saved, truth=shares).save(run)
    assert [len(Findings.load(run, saved.key).truth["shares"]) for run in runs] == [6, 2]


def test_an_attack_needs_no_truth_at_all(inferred):
    """View, recovery and the server's knowledge give the guesses that the run saved."""
    world = World.prepare(load_scenario(inferred.scenario))
    view = AttackerView.load(inferred.transcript, inferred.counts)
    recovery = Recovery.load(inferred.recovery)
    saved = Findings.load(inferred, "label_inference")
    evidence = recovered_evidence(recovery, sent_models(world, view.transcript), np.arange(6))
    attack = world.scenario.attack.inference[0]
    guess = attack.infer(evidence, world.knowledge, rng=np.random.default_rng(99))
    np.testing.assert_array_equal(guess.values, saved.guesses["disaggregated"])


def test_columns_cannot_be_told_apart(inferred):
    """Given the recovered updates as the oracle's, an attack returns what it did in its own column."""
    world = World.prepare(load_scenario(inferred.scenario))
    view = AttackerView.load(inferred.transcript, inferred.counts)
    recovery = Recovery.load(inferred.recovery)
    truth = Truth(Truth.load(inferred.truth).participation, recovery.updates)
    columns = Columns.choose(world, view, recovery, truth, None)
    mine, oracle = columns.disaggregated().evidence, columns.oracle().evidence
    assert mine.clients == oracle.clients == 1
    np.testing.assert_array_equal(mine.updates, oracle.updates)
    np.testing.assert_array_equal(mine.starts, oracle.starts)


def test_a_remade_update_is_the_one_that_was_sent(inferred):
    """With full batches a client's update is the same in every round, so the truth's mean is any of them."""
    world = World.prepare(load_scenario(inferred.scenario))
    truth = Truth.load(inferred.truth)
    for client in range(6):
        np.testing.assert_allclose(single_update(world, client), truth.updates[client], atol=1e-6)


def test_a_remade_update_is_defended_as_it_was(scenario_file, tmp_path):
    """In a run of one round with everybody, the truth's means are the updates of that round."""
    defences = (
        "defences=[{ name = 'clipping', norm = 0.05 }, { name = 'noise', sd = 0.001 },"
        " { name = 'local_dp', norm = 0.02, epsilon = 50 }, { name = 'top_k', fraction = 0.5 },"
        " { name = 'quantisation', bits = 6 }, { name = 'central_dp', norm = 0.01, noise_multiplier = 1 }]"
    )
    overrides = ["federation.rounds=1", "federation.participation.rate=1", "analytics.window=1", defences]
    world = World.prepare(load_scenario(scenario_file, overrides))
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    train_run(world, directory)
    updates = Truth.load(directory.truth).updates
    for client in range(6):
        np.testing.assert_allclose(single_update(world, client), updates[client], atol=1e-6)


WEIGHTED = ("clients.weighting=examples", "data.partition={ name = 'iid', sizes = [3, 8, 14, 5, 9, 11] }")


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """A run whose updates count by examples, and how to make the columns of its evidence."""
    folder = tmp_path_factory.mktemp("weighted")
    (folder / "small.toml").write_text(SMALL_SCENARIO)
    overrides = (*WEIGHTED, "clients.batch_size=32")
    world = World.prepare(load_scenario(folder / "small.toml", overrides))
    directory = RunDirectory.create(folder / "run", replace=False)
    train_run(world, directory)
    publish(world.scenario, directory)
    return world, AttackerView.load(directory.transcript, directory.counts), Truth.load(directory.truth)


def test_weights_are_part_of_sums_and_of_the_truth(weighted):
    world, view, truth = weighted
    np.testing.assert_array_equal(view.transcript.weights, truth.participation @ [3, 8, 14, 5, 9, 11])
    sums = truth.participation.astype(np.float32) @ truth.updates
    np.testing.assert_allclose(view.transcript.aggregates, sums, atol=1e-5)
    for client in range(6):
        np.testing.assert_allclose(single_update(world, client), truth.updates[client], atol=1e-5)


def test_evidence_is_freed_from_the_weights_that_the_server_can_compute(weighted):
    """Attacks get updates as clients compute them: the weights of sums and the columns tell the factors."""
    world, view, truth = weighted
    perfect = SimpleNamespace(
        participation=truth.participation,
        updates=truth.updates,
        rows=None,
        clients=np.arange(6, dtype=np.uint64),
    )
    columns = Columns.choose(world, view, perfect, truth, None)  # type: ignore[arg-type]
    plain = truth.updates / np.array([3, 8, 14, 5, 9, 11], dtype=np.float32)[:, None]
    for column in (columns.disaggregated(), columns.oracle(), columns.cohort(1, np.arange(6))):
        np.testing.assert_allclose(column.evidence.updates, plain, atol=1e-6)
    pair = columns.cohort(2, np.arange(6))
    sizes = np.array([3, 8, 14, 5, 9, 11])
    for mean, both in zip(pair.evidence.updates, pair.members, strict=True):
        expected = truth.updates[both].sum(axis=0) / sizes[both].sum()
        np.testing.assert_allclose(mean, expected, atol=1e-6)


def test_noise_on_sums_is_on_cohorts_and_not_on_single_updates(inferred):
    noisy = "defences=[{ name = 'central_dp', norm = 10, noise_multiplier = 0.01 }]"
    world = World.prepare(load_scenario(inferred.scenario, [noisy]))
    view, recovery = AttackerView.load(inferred.transcript, inferred.counts), Recovery.load(inferred.recovery)
    columns = Columns.choose(world, view, recovery, Truth.load(inferred.truth), None)
    for size, sd in ((1, 0), (2, 0.1)):
        cohort = columns.cohort(size, np.arange(6))
        sums = np.array([sum(single_update(world, int(k)) for k in row) for row in cohort.members])
        assert (size * cohort.evidence.updates - sums).std() == pytest.approx(sd, rel=0.05, abs=1e-6)


@pytest.mark.parametrize(
    "defences",
    [
        "[]",
        "[{ name = 'central_dp', norm = 0.1, noise_multiplier = 1 },"
        " { name = 'central_dp', norm = 0.1, noise_multiplier = 1, noise_on = 'model' }]",
    ],
)
def test_a_server_that_updates_its_model_knows_what_it_sent(scenario_file, tmp_path, monkeypatch, defences):
    overrides = ["federation.server_model=updated", f"defences={defences}"]
    world = World.prepare(load_scenario(scenario_file, overrides))
    received = {}
    prepare = Trainer.prepare

    def watched(self, clients, round_index, start):
        received[round_index] = start.copy()
        prepare(self, clients, round_index, start)

    monkeypatch.setattr(Trainer, "prepare", watched)
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    train_run(world, directory)
    transcript = Transcript.load(directory.transcript)
    empty = np.flatnonzero(transcript.cohort_sizes == 0)
    assert 0 < len(empty) == 24 - len(received)
    sent = sent_models(world, transcript)
    for round_index, model in received.items():
        np.testing.assert_allclose(sent[round_index], model, atol=1e-6)


def test_guesses_without_names_are_compared_with_those_they_are_about(scenario_file, tmp_path):
    """Without counts columns come in any order; they are scored against whom they belong to."""
    overrides = ["analytics.collection=off", "federation.rounds=40", ATTACKS]
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    result = run_scenario(World.prepare(load_scenario(scenario_file, overrides)), directory)
    assert result.disaggregation.pseudonymous
    assert result.disaggregation.update_cosine == pytest.approx(1)
    found = Findings.load(directory, "label_inference")
    np.testing.assert_allclose(found.guesses["disaggregated"], found.guesses["oracle"], atol=1e-3)


def test_where_nobody_takes_part_nobody_is_attacked(scenario_file, tmp_path):
    overrides = ["clients.failures.absent=1.0", "federation.rounds=8", ATTACKS]
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    result = run_scenario(World.prepare(load_scenario(scenario_file, overrides)), directory)
    for score in result.scores.values():
        assert score.to_json() == {"kind": score.kind, "clients": 0, "resolved": 0}
    assert set(result.scores) == {"label_inference", "analytic"}
    assert directory.report.read_text().count("nobody to attack") == 2


def test_entries_of_the_same_name_are_numbered(scenario_file):
    attacks = load_scenario(scenario_file, [ATTACKS]).attack.inference
    keys = [key for key, _ in entries(attacks + attacks)]
    assert keys == ["label_inference", "analytic", "label_inference_2", "analytic_2"]


def test_a_client_without_an_update_is_no_evidence(inferred, tmp_path):
    """Where nobody is resolved, the column is empty rather than invented."""
    world = World.prepare(load_scenario(inferred.scenario))
    view, recovery = AttackerView.load(inferred.transcript, inferred.counts), Recovery.load(inferred.recovery)
    nobody = replace(recovery, updates=np.full_like(recovery.updates, np.nan))
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    truth = Truth.load(inferred.truth)
    attacker = attack_process(world.scenario.attack, directory.path)
    scores = InferenceRun(attacker, world, directory, view=view, recovery=nobody, truth=truth).run()
    assert scores["label_inference"].resolved == 0
    assert scores["label_inference"].tv.disaggregated is None
    assert scores["analytic"].psnr_db.disaggregated is None
    assert scores["label_inference"].tv.oracle < scores["label_inference"].tv.prior
    findings = Findings.load(directory, "analytic")
    page = InversionJudge().show(findings)
    assert "no update" in page
    assert "At best" in page


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["attack.inference=[{ name = 'magic' }]"], "attack.inference.0.name is 'magic': expected"),
        (["attack.inference=[{ name = 'analytic', target = 1 }]"], "attack.inference.0.target: unknown key"),
        (["attack.inference=[{ name = 'analytic', targets = 0 }]"], "attack.inference.0.targets is 0"),
        (["attack.inference=['analytic']", "model={ name = 'lenet' }"], "model lenet has none"),
        (["attack.inference=['label_inference']", "attack.inference.1.targets=2"], "1 is not one of 0..0"),
        (["attack.inference=['label_inference']", "attack.inference.0=2"], "expected attack.inference.0.KEY"),
        (["attack.inference=[{ name = 'analytic', cohorts = [7] }]"], "cohorts: 7"),
        ([WARM, "data.planted=0.5", "data.test_images=200", "attack.auxiliary_images=200"],
         "every client has 'warm' in its data"),
        ([WARM], "needs auxiliary examples: set attack.auxiliary_images"),
        (["data.partition={ name = 'property', attribute = 'warm' }"], "data.partition.attribute is 'warm'"),
        (["attack.auxiliary_images=51"], "auxiliary_images is 51: the part that nobody trains on holds 50"),
    ],
)  # fmt: skip
def test_mistakes_are_found_before_anything_runs(scenario_file, overrides, message):
    with pytest.raises(UserError) as caught:
        World.prepare(load_scenario(scenario_file, overrides))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_guesses_are_not_compared_with_other_data(fedsim, inferred_copy):
    result = json.loads(inferred_copy.result.read_text())
    result["simulation"]["data"] = "0123456789abcdef"
    inferred_copy.result.write_text(json.dumps(result))
    reseal(inferred_copy.path)
    before = inferred_copy.recovery.read_bytes()
    done = fedsim("attack", inferred_copy.path)
    assert (done.status, done.stdout) == (2, "")
    assert "was trained on other data than there are now" in done.stderr
    assert inferred_copy.recovery.read_bytes() == before


def test_attack_again_with_other_inference(fedsim, inferred_copy):
    done = fedsim("attack", inferred_copy.path, "--force", "--set", "attack.inference.1.targets=1")
    assert done.status == 0, done.stderr
    assert read_result(inferred_copy).inversion["analytic"].clients == 1
    assert "analytic psnr_db" in done.stdout
    none = fedsim("attack", inferred_copy.path, "--force", "--set", "attack.inference=[]")
    assert none.status == 0, none.stderr
    assert not read_result(inferred_copy).scores


def test_property_inference_from_the_file_to_the_report(scenario_file, tmp_path):
    overrides = (
        "data.train_images=400",
        "data.test_images=150",
        "data.planted=0.4",
        "data.partition={ name = 'property', attribute = 'warm' }",
        "attack.auxiliary_images=150",
        WARM,
        "attack.inference.0.updates=10",
        "attack.inference.0.cohorts=[1, 3]",
    )
    world = World.prepare(load_scenario(scenario_file, overrides))
    directory = RunDirectory.create(tmp_path / "run", replace=False)
    found = run_scenario(world, directory).scores["property_inference"]
    assert set(dict(found.auc)) == {*COLUMNS, "chance"}
    assert set(found.auc_by_cohort) == {"1", "3"}
    # Full batches and no noise: the recovered updates are the true ones, and so are the guesses.
    assert found.auc.disaggregated == pytest.approx(found.auc.oracle)
    assert found.auc_low.oracle <= found.auc.oracle <= found.auc_high.oracle
    assert found.right.chance == 0.5
    assert "property_inference" in directory.report.read_text()


def test_a_property_that_is_always_guessed_wrong_is_drawn():
    """An area of 0 is a figure, not a missing one."""
    has = np.array([True, False])
    wrong = np.array([0.0, 1.0], dtype=np.float32)
    columns = ("aggregate", "disaggregated", "oracle", "cohort_1")
    truth = {"has": has, "property": np.array("warm")}
    findings = Findings(
        "warm", "property_inference", np.arange(2), has | True, dict.fromkeys(columns, wrong), truth
    )
    spec = PropertyJudge().fading(findings)
    (line,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    assert [row["auc"] for row in line["data"]["values"]] == [0.0]


def test_every_kind_of_attack_has_its_judge():
    kinds = {attack.kind for attack in members(Inference).values()}
    assert kinds == set(get_args(Kind)) == set(JUDGES)
    assert all(judge.kind == kind for kind, judge in JUDGES.items())
