"""What an officer files: a record with a schema, and a report with every section."""

import json
import re
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from scenarios.audit.audit import audit
from scenarios.audit.dossier import epsilons, filed, statements
from scenarios.audit.logs import Log
from scenarios.audit.page import render_audit
from scenarios.audit.record import SCHEMA_FILE, audit_schema
from scenarios.audit.words import remarks
from scenarios.planted import Planted

_, TRANSCRIPT, COUNTS = Planted(clients=6, rounds=30, rate=0.3, window=5, dim=30).plant()


@pytest.fixture(scope="module")
def found():
    return audit(Log(TRANSCRIPT.aggregates, COUNTS, None, None, {}))


def test_the_schema_file_is_that_of_the_types():
    assert json.loads(SCHEMA_FILE.read_text()) == audit_schema(), "make schema writes it anew"


def test_a_record_keeps_to_the_schema(found):
    record = filed(found).model_dump(mode="json")
    jsonschema.validate(record, json.loads(SCHEMA_FILE.read_text()))
    assert (record["verdict"], record["separated"]) == ("exposed", 6)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record | {"separated": "six"}, json.loads(SCHEMA_FILE.read_text()))


def test_the_report_has_every_section(found):
    page = render_audit(found, [])
    for heading in ("Who sees what", "Privacy parameters", "Evidence and its limits", "Residual risk"):
        assert f"<h2>{heading}</h2>" in page
    assert "What would have prevented it" in page
    assert not re.search(r'\s(src|href)="(?!data:)', page)


def test_every_epsilon_has_a_unit_and_a_delta(found):
    """One participation costs less than one in every window; without noise there is no ε at all."""
    noisy = replace(COUNTS, noise_sd=np.full(len(COUNTS.count), 2.0))
    single, every = epsilons(noisy)
    assert 0 < single.epsilon < every.epsilon
    assert (single.unit, every.delta) == ("one participation of one client", 1e-5)
    assert epsilons(COUNTS) == epsilons(None) == ()
    (privacy,) = (s for s in statements(found) if s.heading == "Privacy parameters")
    assert "no ε" in privacy.sentences[0]


def test_the_risk_follows_the_verdict(found):
    def risk(audited):
        return next(s.sentences[0] for s in statements(audited) if s.heading == "Residual risk")

    assert risk(found).startswith("High. 6 of 6 clients")
    assert risk(audit(Log(np.zeros((5, 3)), None, None, None, {}), alternatives=False)).startswith("Unknown")


def test_unknown_layers_under_noise_are_told():
    _, transcript, counts = Planted(clients=6, rounds=40, rate=0.3, window=4, dim=40, noise_sd=0.2).plant()
    log = Log(transcript.aggregates, counts, None, None, {}, stated="sums")
    assert any("--layers FILE" in sentence for sentence in remarks(audit(log, alternatives=False)))
    known = audit(replace(log, layer_shapes=((40,),)), alternatives=False)
    assert not any("--layers FILE" in sentence for sentence in remarks(known))
