"""Weights survive the way in, the way out and the way through a checkpoint."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learner_data import SHAPES

from protocol.weights import WeightVersion


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}], ids=["one rank", "TP2", "PP2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_round_trip_is_bitwise(ranks, settings, tmp_path, shape, layout):
    """The published weights equal the loaded ones, whatever layout holds them in between."""
    made = settings(shape, **layout)
    found = ranks.learner(
        made, ("publish", WeightVersion(1), 0, WeightVersion(0), str(tmp_path / "out")), world=2 if layout else 1
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
        made, ("publish", WeightVersion(3), 2, WeightVersion(1), str(tmp_path / "out")), ("weights_digest",)
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
    attempt = ("publish", WeightVersion(1), 1, WeightVersion(0), str(tmp_path / "out"))
    ranks.run("survives", settings=settings(), attempt=attempt, error="OSError")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"of another version"
