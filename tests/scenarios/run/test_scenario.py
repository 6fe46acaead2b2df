import pytest

from attacks.disaggregation.solvers import Gurobi, Highs
from fedsim.core.errors import UserError
from fedsim.models import Lenet
from scenarios.run.scenario import LIBRARY, find_scenario, load_scenario, read_toml


@pytest.mark.parametrize(
    "file",
    [file for file in sorted(LIBRARY.glob("*.toml")) if "seeds" not in read_toml(file)],  # no evaluations
    ids=lambda path: path.stem,
)
def test_library_scenarios_are_valid(file):
    assert load_scenario(file).title


def test_written_scenario_reads_back_the_same(scenario_file, tmp_path):
    scenario = load_scenario(scenario_file, ["attack.solver=highs", "attack.solver.time_limit_s=7.5"])
    (tmp_path / "again.toml").write_text(scenario.to_toml())
    assert load_scenario(tmp_path / "again.toml") == scenario
    assert "data_fraction = 1.0" in scenario.to_toml()


@pytest.mark.parametrize(
    ("override", "holds"),
    [
        ("clients.local_epochs=8", lambda s: s.clients.local_epochs == 8),
        ("clients.lr=0.5", lambda s: s.clients.lr == 0.5),
        ("clients.lr=1", lambda s: s.clients.lr == 1.0),
        ("title=Two words", lambda s: s.title == "Two words"),
        ("model=lenet", lambda s: s.model == Lenet()),
        ('model={ name = "lenet", hidden = 512 }', lambda s: s.model == Lenet(hidden=512)),
        ("attack.solver=gurobi", lambda s: isinstance(s.attack.solver, Gurobi)),
        ("attack.solver.name=highs", lambda s: isinstance(s.attack.solver, Highs)),
        ("federation.participation.rate=0.5", lambda s: s.federation.participation.rate == 0.5),
        ("clients.lr=.5", lambda s: s.clients.lr == 0.5),
        ("clients.lr=5.e-1", lambda s: s.clients.lr == 0.5),
    ],
)
def test_overrides(scenario_file, override, holds):
    assert holds(load_scenario(scenario_file, [override]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("clients.batch_sise=8", "clients.batch_sise: unknown key, expected one of dataset_size, batch_size"),
        ("colour=red", "colour: unknown key, expected one of title, seed"),
        ("model.depth=3", "model.depth: unknown key, expected one of name, hidden, activation"),
        ("clients.batch_size=eight", "clients.batch_size is 'eight': expected a valid integer"),
        ('clients.batch_size="8"', "clients.batch_size is '8': expected a valid integer"),
        ("clients.momentum=1.5", "clients.momentum is 1.5: expected less than 1"),
        ("analytics.window=0", "analytics.window is 0: expected greater than 0"),
        ("federation.rounds=0", "federation.rounds is 0: expected greater than 0"),
        (
            "federation.server_model=wobbly",
            "federation.server_model is 'wobbly': expected 'fixed' or 'updated'",
        ),
        (
            "federation.participation.rate=2",
            "federation.participation.rate is 2: expected less than or equal to 1",
        ),
        (
            "federation.strategy=krum",
            "federation.strategy is 'krum': krum compares single updates, but behind secure aggregation the "
            "server gets their sum only; expected fedavg, fedavgm, fedadam, fedadagrad or fedyogi",
        ),
        ("federation.strategy={ name = 'fedmedian' }", "fedmedian takes the median of single updates"),
        (
            "federation.strategy={ name = 'fedadam', eta = 0 }",
            "federation.strategy.eta is 0: expected",
        ),
        ("federation.strategy=fedsgd", "federation.strategy.name is 'fedsgd': expected 'fedavg', 'fedavgm'"),
        (
            "federation.strategy=fedadam",
            "federation.strategy is fedadam, but a server with a fixed model applies none: set "
            "federation.server_model to updated",
        ),
        ("clients.weighting=loss", "clients.weighting is 'loss': expected 'equal' or 'examples'"),
        ("data.partition={ name = 'iid', sizes = [4, 0] }", "expected greater than 0"),
        ("data.partition={ name = 'iid', sizes = [4], size_spread = 0.5 }", "either size_spread or sizes"),
        ("attack.solver=magic", "attack.solver.name is 'magic': expected 'projection'"),
        ("data={ name = 'cifar10' }", "data.path: missing"),
        ("data=cifar10", "data.path: missing"),
        ("model=7", "model is 7: expected"),
        ("model={ hidden = 8 }", "model is {'hidden': 8}: expected a name, or a table with a name"),
        ("nonsense", "expected KEY=VALUE"),
        ("seed.x=1", "seed is not a section"),
    ],
)
def test_mistakes_are_one_line_that_names_the_key(scenario_file, override, message):
    with pytest.raises(UserError) as caught:
        load_scenario(scenario_file, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_noise_on_models_is_scaled_for_plain_means(scenario_file):
    noisy = "defences=[{ name = 'central_dp', norm = 1, noise_multiplier = 1, noise_on = 'model' }]"
    learning = "federation.server_model=updated"
    load_scenario(scenario_file, [noisy, learning])
    for other in ("federation.strategy=fedyogi", "clients.weighting=examples"):
        with pytest.raises(UserError, match="noise on the model is scaled for plain means"):
            load_scenario(scenario_file, [noisy, learning, other])


def test_missing_section(tmp_path):
    (tmp_path / "a.toml").write_text('title = "x"\ndata = "synthetic"\n')
    with pytest.raises(UserError, match=r"a\.toml: federation: missing"):
        load_scenario(tmp_path / "a.toml")


def test_files_that_are_no_scenarios(tmp_path):
    (tmp_path / "broken.toml").write_text("title = ")
    with pytest.raises(UserError, match=r"broken\.toml: not a TOML file"):
        load_scenario(tmp_path / "broken.toml")
    with pytest.raises(UserError, match="Is a directory"):
        load_scenario(tmp_path)


def test_unknown_names_list_the_library():
    with pytest.raises(UserError, match=r"quickstrat: no such file.*did you mean quickstart") as caught:
        find_scenario("quickstrat")
    assert "cifar10_fedavg, " in str(caught.value) and "defences" not in str(caught.value)
    with pytest.raises(UserError, match="`fedsim evaluate defences` runs it"):
        find_scenario("defences")
    assert find_scenario("quickstart").stem == "quickstart"


def test_a_mistake_in_an_override_is_not_the_files():
    with pytest.raises(UserError, match=r"^--set federation\.rounds=ten: federation\.rounds is 'ten'"):
        load_scenario("quickstart", ["federation.rounds=ten"])


def test_another_name_says_how_to_replace_the_settings_beside_it(scenario_file):
    with pytest.raises(
        UserError, match=r"--set model\.name=resnet: model\.hidden: unknown key.*--set model=resnet"
    ):
        load_scenario(scenario_file, ["model.name=resnet"])
    assert load_scenario(scenario_file, ["model=resnet"]).model.name == "resnet"


def test_a_title_tells_what_was_changed(scenario_file):
    changed = load_scenario(scenario_file, ["federation.server_model=updated"])
    assert changed.title == "Small · federation.server_model=updated"
    assert load_scenario(scenario_file, ["title=Mine"]).title == "Mine"


def test_a_scenario_can_be_made_of_a_mapping_and_changed(scenario_file):
    read = load_scenario(scenario_file)
    made = load_scenario(read_toml(scenario_file), {"seed": 9, "attack.solver": read.attack.solver})
    assert (made.seed, made.attack) == (9, read.attack)
    assert read.changed({"title": "Other"}) == load_scenario(scenario_file, ["title=Other"])
    with pytest.raises(UserError, match="scenario: federation: missing"):
        load_scenario({"title": "x", "data": "synthetic"})
    with pytest.raises(UserError, match="expected a mapping, or a list of KEY=VALUE"):
        load_scenario(read, "seed=9")
