"""A published folder is the base's with other weights, and nothing that is done to it reaches the base."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learner.checkpoint.published_weights import WeightVersionInfo, write_weights_folder
from learner.models.hf_folder import NamedWeight
from protocol.weights import NO_VERSION, WeightVersion

WEIGHT = NamedWeight("weight", torch.ones(3))
NAMED = WeightVersionInfo(WeightVersion(1), 1, NO_VERSION)


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 8, "torch_dtype": "bfloat16"}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"the base's")
    return folder


def publish(base: Path, weights=(WEIGHT,)):
    return write_weights_folder(
        weights, {"weight": 12}, base, base.parent / "out", dtype=torch.float32, named=NAMED, shard_bytes=1 << 20
    )


def test_the_published_config_names_the_dtype_of_the_weights(base):
    """transformers loads them as what is named."""
    made = Path(publish(base).path)
    assert json.loads((made / "config.json").read_text()) == {"hidden_size": 8, "torch_dtype": "float32"}
    assert load_file(made / "model.safetensors")["weight"].dtype is torch.float32


def test_writing_into_a_published_folder_leaves_the_base_model_unchanged(base):
    before = {path.name: path.read_bytes() for path in base.iterdir()}
    made = Path(publish(base).path)
    for name in ("config.json", "tokenizer.json"):
        (made / name).write_text("of somebody else")
    assert {path.name: path.read_bytes() for path in base.iterdir()} == before


def test_a_failed_publication_leaves_no_files(base):
    def broken():
        yield WEIGHT
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        publish(base, broken())
    assert [path.name for path in base.parent.iterdir()] == ["base"]
