"""Attacks on another device than the CPU. torch's `meta`, which has shapes but no numbers, stands for it."""

import dataclasses

import numpy as np
import pytest
import torch

from attacks.device_products import gram_on, products_on
from attacks.disaggregation.space.gram import gram, products_by, standardised_gram
from attacks.disaggregation.space.whitening import whitened_gram
from attacks.inference.inversion import local_steps
from attacks.inference.inversion.dlg import Dlg
from attacks.inference.inversion.geiping import Geiping
from attacks.inference.properties import PropertyInference
from fedsim.core.errors import UserError
from fedsim.models import Mlp, Resnet
from fedsim.training.local_training import FlatModel, local_update
from fedsim.training.local_work import LocalWork
from tests.helpers.updates import DATA, evidence_on, knowledge_of, start_of

WORK = LocalWork(dataset_size=4, batch_size=2)
META = torch.device("meta")


def on_meta(model, work=WORK):
    return dataclasses.replace(knowledge_of(model, work), device="meta")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gram_matrices_come_from_the_device_alone(dtype):
    A = np.random.default_rng(0).normal(size=(9, 24)).astype(dtype)
    makers = (gram, standardised_gram, lambda A: whitened_gram(A, None, [(4, 6)]))
    expected = [make(A) for make in makers]
    # The path of a GPU, with a device that is there.
    with products_by(products_on("cpu")):
        for make, there in zip(makers, expected, strict=True):
            np.testing.assert_allclose(make(A), there, rtol=1e-5, atol=1e-5)
    with gram_on("meta"):
        for make in makers:
            with pytest.raises(NotImplementedError, match="meta"):
                make(A)
    np.testing.assert_array_equal(gram(A), expected[0])


def test_inversion_looks_at_no_number_until_the_end(monkeypatch):
    calls = []
    real = local_steps.simulated_update

    def counted(*arguments, **more):
        calls.append(1)
        return real(*arguments, **more)

    monkeypatch.setattr(local_steps, "simulated_update", counted)
    model, attack = Resnet(width=8), Geiping(iterations=5, labels="known")
    evidence = dataclasses.replace(evidence_on(model, WORK, np.arange(4)), label_shares=np.full((1, 10), 0.1))
    with pytest.raises(NotImplementedError, match="meta"):
        attack.infer(evidence, on_meta(model), rng=np.random.default_rng(0))
    assert len(calls) == attack.iterations


def test_the_network_of_the_attacker_is_on_its_device():
    knowledge = on_meta(Mlp(hidden=4))
    assert {p.device for p in knowledge.module_on_device.parameters()} == {META}
    assert {p.device.type for p in knowledge.module.parameters()} == {"cpu"}
    vector = FlatModel(start_of(Mlp(hidden=4))).read()
    assert [t.shape for t in knowledge.tensors(vector)] == [w.shape for w in knowledge.layers(vector)]
    assert {t.device for t in knowledge.tensors(vector)} == {META}


def test_shadow_training_stays_on_the_device(monkeypatch):
    """What `train_shadows` does with every shadow: only the finished update comes back."""
    monkeypatch.setattr(FlatModel, "write_difference", lambda self, start, out: None)
    flat = FlatModel(start_of(Mlp(hidden=4)), META)
    update = local_update(
        flat,
        np.zeros(flat.dim, np.float32),
        inputs=DATA.task.as_inputs(DATA.train.inputs[:4]).to(META),
        targets=DATA.task.as_targets(DATA.train.targets[:4]).to(META),
        loss=DATA.task.loss,
        settings=WORK,
        rng=np.random.default_rng(0),
    )
    assert update.shape == (flat.dim,)
    assert flat.vector.device == META


def test_what_a_device_cannot_do_is_said_at_once():
    whole = LocalWork(dataset_size=4, batch_size=4)
    knowledge = dataclasses.replace(knowledge_of(Mlp(hidden=4), whole), device="mps")
    with pytest.raises(UserError, match="dlg needs double precision, which mps does not have"):
        Dlg().check(knowledge)
    with pytest.raises(UserError, match="auxiliary"):
        PropertyInference(property="warm").check(knowledge)
