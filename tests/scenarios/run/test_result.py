"""The result file: its types, its schema, its versions, and what is said about a damaged one."""

import copy
import json
import shutil

import jsonschema
import pytest

from fedsim.core.errors import UserError
from scenarios.planted import Planted
from scenarios.run.directory import RunDirectory
from scenarios.run.result import SCHEMA_FILE, SCHEMA_VERSION, PlantedResult, Result, result_schema
from scenarios.run.runner import attack_run, honest_part, read_result
from scenarios.run.scenario import load_scenario
from tests.helpers.runs import reseal

INFERENCE = (
    'attack.inference=[{name="label_inference", cohorts=[2]}, {name="analytic", targets=2}, '
    '{name="label_inference"}]'
)


@pytest.fixture(scope="module")
def inferred(finished_run, tmp_path_factory):
    """The finished run, attacked again with two label attacks and an inversion."""
    directory = RunDirectory(tmp_path_factory.mktemp("inferred") / "run")
    shutil.copytree(finished_run.path, directory.path)
    attack_run(load_scenario(directory.scenario, [INFERENCE]), directory, honest_part(directory))
    return directory


@pytest.fixture
def run_copy(finished_run, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    shutil.copytree(finished_run.path, directory.path)
    return directory


def schema():
    return json.loads(SCHEMA_FILE.read_text())


def test_the_schema_file_is_that_of_the_types():
    assert schema() == result_schema(), "make schema writes it anew"


def test_a_real_run_keeps_to_the_schema(finished_run, inferred):
    for directory in (finished_run, inferred):
        jsonschema.validate(json.loads(directory.result.read_text()), schema())


def test_a_planted_problem_keeps_to_the_schema():
    jsonschema.validate(Planted(clients=4, rounds=12, rate=0.3).run().to_json(), schema())


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.pop("schema_version"),
        lambda content: content["disaggregation"].pop("exact_fraction"),
        lambda content: content["disaggregation"].update(exact_fraction="1"),
        lambda content: content["label_inference"].update(kind="gossip"),
        lambda content: content["label_inference"]["tv"].update(guess=1.0),
        lambda content: content.update(analytics=[]),
        lambda content: content.update(anything={}),
    ],
)
def test_damage_is_against_the_schema_and_the_types(inferred, damage):
    content = json.loads(inferred.result.read_text())
    damage(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema())
    if "schema_version" in content:
        with pytest.raises(UserError):
            Result.from_json(content, "here")


def test_what_is_written_is_read_back(inferred):
    content = json.loads(inferred.result.read_text())
    assert content["schema_version"] == SCHEMA_VERSION
    result = Result.from_json(content, "here")
    assert result.to_json() == content
    assert list(result.scores) == ["analytic", "label_inference", "label_inference_2"]
    assert result.scores["label_inference"].tv_by_cohort.keys() == {"2"}
    planted = Planted(clients=4, rounds=12, rate=0.3).run()
    assert PlantedResult.from_json(planted.to_json(), "here") == planted


def without_versions(content):
    """A result as it was before results had versions, and scores had kinds."""
    old = copy.deepcopy(content)
    del old["schema_version"]
    for score in (*old["inversion"].values(), old["label_inference"], old["label_inference_2"]):
        del score["kind"]
    return old


def test_a_result_from_before_versions_is_read(inferred):
    content = json.loads(inferred.result.read_text())
    old = without_versions(content)
    before = copy.deepcopy(old)
    assert Result.from_json(old, "here").to_json() == {**content, "schema_version": 1}
    assert old == before


def test_a_result_from_before_versions_that_lacks_a_figure_says_what_to_do(fedsim, run_copy):
    content = json.loads(run_copy.result.read_text())
    del content["schema_version"], content["disaggregation"]["singled_out_fraction"]
    run_copy.result.write_text(json.dumps(content))
    reseal(run_copy.path)
    done = fedsim("report", run_copy.path)
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    assert "result.json: disaggregation.singled_out_fraction: missing" in done.stderr
    assert f"run `fedsim attack {run_copy.path}` again" in done.stderr
    assert fedsim("attack", run_copy.path).status == 0
    assert fedsim("report", run_copy.path).status == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "result.json: not the result of a run"),
        ("null", "result.json: not the result of a run"),
        ("[]", "result.json: title: missing (and 8 more mistakes); run the scenario again"),
        ("{}", "result.json: title: missing (and 8 more mistakes); run the scenario again"),
        ('{"title": "x", "seed": 1, "simulation": 3}', "result.json: simulation is 3: expected"),
        ('{"schema_version": "new"}', "result.json: schema_version is 'new': expected a valid integer"),
        ('{"schema_version": 99}', "result.json: schema_version is 99, and this fedsim reads 2 at most"),
    ],
)
def test_a_damaged_or_hollow_result_is_one_line(fedsim, run_copy, text, said):
    run_copy.result.write_text(text)
    reseal(run_copy.path)
    done = fedsim("report", run_copy.path)
    assert (done.status, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr
    again = fedsim("attack", run_copy.path)
    assert (again.status, again.stdout, len(again.stderr.splitlines())) == (2, "", 1)


def test_an_attack_needs_only_what_no_attack_changes(fedsim, run_copy):
    """Whatever became of the rest of the file, the attack makes it anew."""
    content = json.loads(run_copy.result.read_text())
    content["disaggregation"] = "gone"
    run_copy.result.write_text(json.dumps(content))
    reseal(run_copy.path)
    assert fedsim("attack", run_copy.path).status == 0
    assert read_result(run_copy).disaggregation.exact_fraction == 1


def test_numbers_that_json_lacks_are_refused(run_copy):
    text = run_copy.result.read_text().replace('"bit_accuracy": 1.0', '"bit_accuracy": NaN')
    run_copy.result.write_text(text)
    with pytest.raises(UserError, match="bit_accuracy is nan: expected a finite number"):
        read_result(run_copy)
