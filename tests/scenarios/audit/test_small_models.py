"""Small models that learn: the rank of their sums tells something about the model, not about clients."""

import numpy as np
import pytest

from analytics import windowed_counts
from scenarios.audit.audit import audit
from scenarios.audit.logs import Log
from scenarios.audit.words import conclusion, remarks


def trained(*, clients, rounds, features, classes, hidden=0, seed=1):
    """Participation, and the sums of a softmax regression or a network with one hidden layer that learns."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, features))
    tables = []
    for _ in range(clients):
        labels = rng.choice(classes, size=30, p=rng.dirichlet(np.ones(classes)))
        tables.append((centres[labels] + rng.standard_normal((30, features)), labels))
    model = [np.zeros((features, classes))]
    if hidden:
        sides = ((features, hidden), (hidden, classes))
        model = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in sides]
    P = (rng.random((rounds, clients)) < 0.25).astype(np.uint8)
    P[np.arange(rounds), rng.integers(clients, size=rounds)] = 1
    sums = []
    for cohort in P:
        steps = [_step(model, *tables[k]) for k in np.flatnonzero(cohort)]
        sums.append(np.concatenate([np.sum(part, axis=0).ravel() for part in zip(*steps, strict=True)]))
        model = [w + np.mean(part, axis=0) for w, part in zip(model, zip(*steps, strict=True), strict=True)]
    return P, np.array(sums, dtype=np.float32)


def _step(model, x, y, rate=0.05):
    inner = x if len(model) == 1 else np.maximum(x @ model[0], 0)
    odds = np.exp(inner @ model[-1])
    wrong = (odds / odds.sum(axis=1, keepdims=True) - np.eye(model[-1].shape[1])[y]) / len(y)
    last = inner.T @ wrong
    steps = [last] if len(model) == 1 else [x.T @ ((wrong @ model[1].T) * (inner > 0)), last]
    return [-rate * step for step in steps]


SHAPES = {
    "softmax": {"clients": 10, "rounds": 60, "features": 20, "classes": 3},
    "two classes": {"clients": 10, "rounds": 60, "features": 30, "classes": 2},
    "tiny network": {"clients": 8, "rounds": 48, "features": 6, "classes": 3, "hidden": 5},
    "fewer entries than clients": {"clients": 12, "rounds": 60, "features": 4, "classes": 2},
    "as many entries as clients": {"clients": 8, "rounds": 40, "features": 4, "classes": 2},
}


@pytest.fixture(scope="module", params=SHAPES)
def found(request):
    """A small model's audit and its truth; all that is said are sums, counts and cohort sizes."""
    P, sums = trained(**SHAPES[request.param])
    log = Log(sums, windowed_counts(P, 6), P.sum(axis=1).astype(np.int64), None, {}, stated="sums")
    return P, audit(log, alternatives=False)


def test_nobody_is_told_that_nobody_was_separated(found):
    """Either somebody is separated, or the audit is inconclusive and says why."""
    _, audited = found
    assert audited.separated or (audited.verdict == "inconclusive" and audited.doubts)
    if not audited.separated:
        assert conclusion(audited).startswith("Inconclusive")
        assert any(sentence.startswith("Inconclusive") for sentence in remarks(audited))


@pytest.mark.parametrize("found", ["softmax", "two classes"], indirect=True)
def test_counts_outweigh_the_spectrum(found):
    """The rank of a regression with c classes and d features is (c - 1) d at most, whoever takes part."""
    P, audited = found
    assert (audited.num_clients, audited.told_by, audited.verdict) == (P.shape[1], "counts", "exposed")
    assert [tried.told_by for tried in audited.tried] == ["counts", "spectrum"]
    assert audited.tried[0].separated > audited.tried[1].separated == 0
    assert any("The spectrum contradicts the input: the counts name 10" in text for text in remarks(audited))
    right = (audited.recovery.participation == P).all(axis=0)
    assert right.sum() >= 8


def test_both_numbers_fail_without_comfort(fedsim, tmp_path):
    """Counts that belong to other rounds: neither their number of clients nor the rank separates anybody."""
    P, sums = trained(**SHAPES["softmax"])
    np.save(tmp_path / "sums.npy", sums)
    shuffled = np.random.default_rng(5).permutation(P.ravel()).reshape(P.shape)
    windowed_counts(shuffled, 6).write_csv(tmp_path / "counts.csv")
    options = ("--counts", "counts.csv", "--rows", "sums", "--no-alternatives", "--out", "audit")
    done = fedsim("audit", "--aggregates", "sums.npy", *options)
    assert done.status == 0
    assert "verdict       inconclusive" in done.stdout
    assert (
        "separated     inconclusive; tried with 10 clients (counts), then 40 clients (spectrum)"
        in done.stdout
    )
    assert "0 of" not in done.stdout.splitlines()[1]


def test_a_spectrum_alone_that_gives_little_is_inconclusive():
    """Without counts, the rank passes for a number of clients that nobody confirms."""
    _, sums = trained(**SHAPES["softmax"])
    audited = audit(Log(sums, None, None, None, {}, stated="sums"), alternatives=False)
    assert audited.verdict == "inconclusive"
    assert "--clients N" in audited.doubts[0].mend
