"""Weight files are judged before a server sees them: a bad one would take the server and its requests with it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from actors.engines.messages import InvalidWeights
from actors.engines.weights.weight_files import check_weights, read_model_shape, read_shapes, weights_differ
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


def write(folder: Path, tensors: dict[str, np.ndarray], **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 8, "tie_word_embeddings": True} | config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def tensors(fill: float = 0.0) -> dict[str, np.ndarray]:
    return {"embed": np.full((8, 4), fill, np.float32), "norm": np.full(4, fill, np.float32)}


def manifest(folder: Path) -> WeightManifest:
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    return WeightManifest(WeightVersion(1), 1, NO_VERSION, str(folder), digest, 2, 0)


def test_whole_files_of_the_model_pass(tmp_path: Path) -> None:
    model = read_model_shape(write(tmp_path / "model", tensors()))
    assert (model.vocabulary, model.shapes) == (8, {"embed": (8, 4), "norm": (4,)})
    check_weights(manifest(write(tmp_path / "new", tensors(1.0))), model)


def test_an_output_head_matters_only_where_it_is_not_tied(tmp_path: Path) -> None:
    with_head = tensors() | {"lm_head.weight": np.zeros((8, 4), np.float32)}
    published = manifest(write(tmp_path / "new", with_head))
    check_weights(published, read_model_shape(write(tmp_path / "tied", tensors())))
    with pytest.raises(InvalidWeights, match="unknown tensors, lm_head"):
        check_weights(published, read_model_shape(write(tmp_path / "untied", tensors(), tie_word_embeddings=False)))


@pytest.mark.parametrize("cut", [0, 4, 20, 100, -1])
def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, cut: int) -> None:
    model = read_model_shape(write(tmp_path / "model", tensors()))
    file = write(tmp_path / "new", tensors()) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InvalidWeights):
        check_weights(manifest(tmp_path / "new"), model)


def test_differences_from_the_model_are_named(tmp_path: Path) -> None:
    model = read_model_shape(write(tmp_path / "model", tensors()))
    other = {"embed": np.zeros((7, 4), np.float32), "bias": np.zeros(4, np.float32)}
    with pytest.raises(
        InvalidWeights, match=r"1 tensors missing, norm first; 1 unknown .* bias first; embed has shape"
    ):
        check_weights(manifest(write(tmp_path / "new", other)), model)


def test_a_damaged_byte_is_refused_by_its_digest(tmp_path: Path) -> None:
    model, folder = read_model_shape(write(tmp_path / "model", tensors())), write(tmp_path / "new", tensors())
    promised = manifest(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(InvalidWeights, match="has digest"):
        check_weights(promised, model)


def test_tensors_overlapping_in_the_file_are_refused(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"a": entry, "b": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(InvalidWeights, match="hole or overlap"):
        read_shapes(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    """It is undefined which of them a server takes."""
    for name in ("model-1.safetensors", "model-2.safetensors"):
        save_file(tensors(), tmp_path / name)
    with pytest.raises(InvalidWeights, match=r"model-2\.safetensors has embed, which another file"):
        read_shapes(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidWeights, match="no safetensors file"):
        read_shapes(tmp_path)


def test_tensors_are_compared_regardless_of_their_position_in_the_file(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", tensors()), write(tmp_path / "other", tensors())
    save_file(load_file(other / "model.safetensors"), other / "model.safetensors", metadata={"step": "3"})
    third = write(tmp_path / "third", tensors() | {"norm": np.ones(4, np.float32)})
    assert not weights_differ(one, other, 4)
    assert weights_differ(one, third, 4)


def test_changes_lost_in_the_servers_rounding_count_as_no_difference(tmp_path: Path) -> None:
    """Otherwise a step too small for a bfloat16 server would never count as loaded and be retried forever."""
    one = write(tmp_path / "one", tensors())
    other = write(tmp_path / "other", {name: values + np.float32(1e-6) for name, values in tensors().items()})
    assert weights_differ(one, other, 4)
    assert not weights_differ(one, other, 2)
