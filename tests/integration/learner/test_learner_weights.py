"""Weights survive the way in, the way out and the way through a checkpoint."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learner_data import SHAPES, lineage, payload, sft_batches

from protocol.weights import Version

OPTIONS = pytest.mark.parametrize(
    "options",
    [{}, {"distributed_optimizer": True}, {"dtype": "bfloat16"}],
    ids=["plain", "distributed optimizer", "bfloat16"],
)


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}], ids=["one rank", "TP2", "PP2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_round_trip_is_bitwise(ranks, settings, tmp_path, shape, layout):
    """What was loaded is what is published, whatever layout holds it in between."""
    made = settings(shape, **layout)
    found = ranks.learner(
        made, ("publish", Version(1), 0, Version(0), str(tmp_path / "out")), world=2 if layout else 1
    )[0]
    (before,) = ranks.run("read_file", path=f"{made.model_path}/model.safetensors")
    (after,) = ranks.run("read_file", path=f"{found.path}/model.safetensors")
    assert before.keys() == after.keys()
    for name, (dtype, weight) in before.items():
        assert after[name][0] == dtype
        np.testing.assert_array_equal(after[name][1], weight, err_msg=name)


def test_published_folder_is_complete_and_described(ranks, settings, tmp_path):
    """Engines load it as it is and compare the checksum."""
    made = settings()
    manifest, digest = ranks.learner(
        made, ("publish", Version(3), 2, Version(1), str(tmp_path / "out")), ("weights_digest",)
    )
    file = Path(manifest.path) / "model.safetensors"
    assert (manifest.version, manifest.step, manifest.parent) == (3, 2, 1)
    assert manifest.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert manifest.bytes == file.stat().st_size
    (weights,) = ranks.run("read_file", path=str(file))
    assert manifest.tensors == len(weights)
    assert json.loads((file.parent / "config.json").read_text())["model_type"] == "qwen3"
    assert (file.parent / "tokenizer.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert len(digest) == 64


def test_sharded_folder_loads_as_the_single_one(ranks, settings, tmp_path):
    """Large models come in several files."""
    ranks.run("make_model", folder=str(tmp_path / "sharded"), shape=SHAPES["untied"], max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    (one,) = ranks.learner(settings("untied"), ("weights_digest",))
    (several,) = ranks.learner(replace(settings("untied"), model_path=str(tmp_path / "sharded")), ("weights_digest",))
    assert one == several


def test_a_version_is_never_written_twice(ranks, settings, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").write_bytes(b"of another version")
    attempt = ("publish", Version(1), 1, Version(0), str(tmp_path / "out"))
    ranks.run("survives", settings=settings(), attempt=attempt, error="OSError")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"of another version"


@OPTIONS
def test_resume_is_bitwise(ranks, settings, tmp_path, options):
    """A run that was killed and resumed ends with the weights of one that was not."""
    before = [("step", n, payload(seed=n), lineage(), Version(4)) for n in range(2)]
    after = [("step", n, payload(seed=n), lineage(), Version(4)) for n in range(2, 4)]
    made, folder = settings(**options), str(tmp_path / "checkpoint")
    whole = ranks.learner(made, *before, ("save", folder), *after, ("weights_digest",))
    resumed = ranks.learner(made, ("load", folder), *after, ("weights_digest",))
    assert resumed[-1] == whole[-1]


@OPTIONS
def test_checkpoint_before_the_first_step(ranks, settings, tmp_path, options):
    """Step 0 is a checkpoint too."""
    made = settings(**options)
    folder, then = str(tmp_path / "checkpoint"), (*(("sft", b) for b in sft_batches()), ("weights_digest",))
    whole = ranks.learner(made, ("save", folder), *then)
    resumed = ranks.learner(made, ("sft", sft_batches()[0]), ("load", folder), *then)
    assert resumed[-1] == whole[-1]


@pytest.mark.parametrize(("layout", "world"), [({"tp": 2}, 2), ({"pp": 2}, 2), ({}, 2)], ids=["TP2", "PP2", "DP2"])
def test_checkpoint_loads_into_another_layout(ranks, settings, tmp_path, layout, world):
    """Resume on the machine that is free, not on the one that wrote.  Compared after a second step: a wrong Adam state
    does not show in the next loss."""
    folder, (first, *rest) = str(tmp_path / "checkpoint"), sft_batches(4, lr=1e-3)
    whole = ranks.learner(settings(eps=1e-4), ("sft", first), ("save", folder), *(("sft", b) for b in rest))
    other = ranks.learner(settings(eps=1e-4, **layout), ("load", folder), *(("sft", b) for b in rest), world=world)
    for a, b in zip(whole[2:], other[1:], strict=True):
        assert b.loss == pytest.approx(a.loss, rel=1e-5)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-4)


def test_no_checkpoint_is_said_so(ranks, settings, tmp_path):
    ((_, _, message),) = ranks.run("survives", settings=settings(), attempt=("load", str(tmp_path)), error="UserError")
    assert "is not a checkpoint" in message
