"""With adapters the base stays as it is, and what is published is what was trained."""

import json
from pathlib import Path

import numpy as np
import pytest
from learner_data import VOCABULARY, lineage, payload, sft_batches

from learner.data.batch import read_batch
from learner.losses.settings import KlPenaltySettings
from learner.settings import LORA_TARGETS, LoraSettings
from protocol.weights import WeightVersion
from tests.support.runs.learner_specs import make_objective

pytestmark = pytest.mark.first_case

BATCHES = sft_batches(3, lr=1e-2)
SOME = LoraSettings(rank=4, targets=("q_proj", "v_proj", "up_proj", "gate_proj"))
TRAINED = tuple(("sft", batch) for batch in BATCHES)


def publish(folder, what="publish"):
    return (what, WeightVersion(1), 1, WeightVersion(0), str(folder))


@pytest.mark.parametrize("shape", ["tied", "untied", "qwen2"])
def test_merged_folder_and_base_with_adapters_compute_the_same(ranks, settings, tmp_path, shape):
    """transformers loads the one, PEFT the other on the base; ranks that share the work write both."""
    made = settings(shape, tp=2, sequence_parallel=True, lora=LoraSettings(rank=4))
    both = (publish(tmp_path / "merged"), publish(tmp_path / "adapter", "publish_adapter"))
    manifest = ranks.learner(made, *TRAINED, *both, world=2)[-1]
    sequence = np.arange(3, 40, dtype=np.int32) % VOCABULARY
    (merged,) = ranks.run("logits", folder=str(tmp_path / "merged"), sequence=sequence)
    (beside,) = ranks.run("logits", folder=made.model_path, sequence=sequence, adapter=manifest.path)
    (base,) = ranks.run("logits", folder=made.model_path, sequence=sequence)
    np.testing.assert_allclose(merged, beside, atol=2e-5)
    assert np.abs(merged - base).max() > 0.05


def test_an_adapter_folder_is_complete_and_described(ranks, settings, tmp_path):
    made = settings(lora=SOME)
    manifest = ranks.learner(made, publish(tmp_path / "adapter", "publish_adapter"))[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], set(config["target_modules"])) == (4, 32, set(SOME.targets))
    (read,) = ranks.run("read_file", path=str(tmp_path / "adapter" / "adapter_model.safetensors"))
    assert manifest.tensors == len(read) == 2 * len(SOME.targets) * 2
    assert manifest.bytes == (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size
    assert read["base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"][1].shape == (4, 32)
    assert read["base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"][1].shape == (64, 4)


def test_every_layout_begins_with_the_same_matrices(ranks, settings, tmp_path):
    """A as a linear layer's weight begins, no two alike; B zero."""
    alone, shared = (
        settings(lora=LoraSettings(rank=4, targets=("q_proj", "down_proj")), **layout)
        for layout in ({}, {"tp": 2, "pp": 2})
    )
    ranks.learner(alone, publish(tmp_path / "alone", "publish_adapter"))
    ranks.learner(shared, publish(tmp_path / "shared", "publish_adapter"), world=4)
    one, four = (
        ranks.run("read_file", path=str(tmp_path / name / "adapter_model.safetensors"))[0]
        for name in ("alone", "shared")
    )
    assert one.keys() == four.keys()
    drawn = []
    for name, (_, matrix) in one.items():
        np.testing.assert_array_equal(four[name][1], matrix, err_msg=name)
        if "lora_A" in name:
            bound = matrix.shape[1] ** -0.5
            assert 0.9 * bound < np.abs(matrix).max() <= bound
            drawn.append(tuple(matrix.ravel()[:8]))
        else:
            assert not matrix.any()
    assert len(set(drawn)) == len(drawn) == 4


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}], ids=["one rank", "TP2", "PP2"])
def test_weights_without_an_adapter_are_published_unchanged(ranks, settings, tmp_path, layout):
    """And everything is, before the first step: B is zero."""
    made, world = settings(lora=SOME, **layout), 2 if layout else 1
    ranks.learner(made, publish(tmp_path / "first"), *TRAINED, publish(tmp_path / "last"), world=world)
    source, first, last = (
        ranks.run("read_file", path=str(Path(folder) / "model.safetensors"))[0]
        for folder in (made.model_path, tmp_path / "first", tmp_path / "last")
    )
    for name, (_, weight) in source.items():
        np.testing.assert_array_equal(first[name][1], weight, err_msg=name)
        assert np.array_equal(last[name][1], weight) == (name.split(".")[-2] not in SOME.targets), name


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}], ids=["float32", "bfloat16"])
def test_only_adapters_have_gradients_and_moments(ranks, settings, options):
    """They are why anybody takes LoRA: of a frozen weight nothing is held but itself."""
    (held,) = ranks.run("numbers_held", settings=settings(lora=SOME, **options), batch=BATCHES[0])
    assert held["trained"] == 4 * 2 * ((32 + 64) + (32 + 32) + 2 * (32 + 64))
    assert held["gradients"] == held["trained"]
    assert held["own"] == held["trained"] * (3 if options else 2)


@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("targets", [("gate_proj",), LORA_TARGETS], ids=["gate_proj", "all"])
def test_recomputation_trains_the_first_layer_too(ranks, settings, recompute, targets):
    """Nothing below it has a gradient, and a recomputed layer has one only where its input has."""
    layout = {"pp": 2, "lora": LoraSettings(rank=4, targets=targets)}
    kept = ranks.run("trained", 2, settings=settings(**layout), batches=BATCHES)[0]
    again = ranks.run("trained", 2, settings=settings(recompute=recompute, **layout), batches=BATCHES)[0]
    assert [each.loss for each in again[0]] == pytest.approx([each.loss for each in kept[0]], rel=1e-6)
    assert [each.grad_norm for each in again[0]] == pytest.approx([each.grad_norm for each in kept[0]], rel=1e-6)
    for name, weight in kept[1].items():
        np.testing.assert_allclose(again[1][name], weight, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}], ids=["float32", "bfloat16"])
def test_sleep_and_an_offloaded_optimizer_change_no_bit(ranks, settings, options):
    made, digest, sleep = settings(lora=SOME, **options), ("weights_digest",), ("offload_to_host",)
    here = ranks.learner(made, *TRAINED, digest)
    away = ranks.learner(settings(lora=SOME, offload="optimizer", **options), TRAINED[0], sleep, *TRAINED[1:], digest)
    assert away[-1] == here[-1]


def test_the_reference_of_a_penalty_is_the_base(ranks, settings):
    """Without a second copy of it; and looking at it leaves no trace."""
    made = settings(lora=SOME, tp=2)
    samples = read_batch(payload(), lineage(), WeightVersion(4), made).samples
    answers = ranks.run("logprobs_beside_reference", 2, settings=made, batch=BATCHES[0], samples=samples)
    (base,) = ranks.run("prepass", settings=settings(), samples=samples)
    for frozen, after, before in answers:
        np.testing.assert_allclose(np.concatenate(frozen), np.concatenate(base), atol=2e-6)
        np.testing.assert_array_equal(np.concatenate(after), np.concatenate(before))
        assert np.abs(np.concatenate(after) - np.concatenate(frozen)).max() > 1e-3


def test_a_step_with_a_penalty_needs_no_folder(ranks, settings, tmp_path):
    made = settings(lora=SOME, objective=make_objective(kl=KlPenaltySettings(coefficient=0.1)))
    keep = ("freeze_reference", str(tmp_path / "reference"), True)
    steps = [("step", 5 + n, payload(seed=n), lineage(), WeightVersion(4)) for n in range(2)]
    _, first, second = ranks.learner(made, keep, *steps)
    assert first.metrics["kl_reference"] == pytest.approx(0, abs=1e-9)
    assert second.metrics["kl_reference"] > 0
    assert list(tmp_path.iterdir()) == []


def test_publishing_adapters_without_lora_is_refused(ranks, settings, tmp_path):
    attempt = publish(tmp_path / "adapter", "publish_adapter")
    ((_, _, message),) = ranks.run("survives", settings=settings(), attempt=attempt, error="UserError")
    assert "lora.rank" in message
