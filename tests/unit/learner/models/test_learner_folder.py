"""A folder of weights is read only when it is whole and of this model, and written so that others can read it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from learner.models.hf_folder import DamagedModelFolderError, NamedWeight, open_tensor_folder, write_tensors
from learner.models.qwen import QWEN_FAMILIES, WEIGHTS_FILE, WEIGHTS_INDEX_FILE, QwenConfig
from learner.models.weight_conversion import (
    check_model_folder,
    embedding_mapping,
    hf_tensor_bytes,
    hf_tensor_shapes,
    layer_weight_mappings,
    output_mapping,
)
from protocol.errors import UserError


def config(**changes) -> QwenConfig:
    made = {
        "family": QWEN_FAMILIES["qwen2"],
        "vocab_size": 11,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    }
    return QwenConfig(**made | changes)


def weights(shape: QwenConfig) -> list[NamedWeight]:
    generator = torch.Generator().manual_seed(0)
    return [NamedWeight(name, torch.randn(size, generator=generator)) for name, size in hf_tensor_shapes(shape).items()]


def write(folder, shape: QwenConfig, shard_bytes: int = 1 << 30):
    return write_tensors(weights(shape), hf_tensor_bytes(shape, torch.float32), folder, shard_bytes)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("family", QWEN_FAMILIES)
def test_joined_shards_of_all_ranks_equal_the_parameters(family, tp):
    """For every parameter, however it is cut."""
    shape, tensors = config(family=QWEN_FAMILIES[family]), dict(weights(config(family=QWEN_FAMILIES[family])))
    layer = {name.removeprefix("model.layers.0."): tensor for name, tensor in tensors.items()}
    for weight in (*layer_weight_mappings(shape), embedding_mapping(shape, tp), output_mapping(shape, tp)):
        theirs = [(layer | tensors)[name] for name in weight.hf_shapes]
        count = 1 if weight.shard_dim is None else tp
        shares = [weight.make_shard(theirs, count, rank).flatten(0, 1) for rank in range(count)]
        for name, found, expected in zip(weight.hf_shapes, weight.join_shards(shares), theirs, strict=True):
            assert torch.equal(found, expected), name


def test_query_key_and_value_of_a_head_are_adjacent():
    """Megatron's order: the query heads of a key head, that key head, its value head."""
    shape = config()
    qkv = layer_weight_mappings(shape)[0]
    q, k, v = (torch.full((rows, 8), float(at)) for at, rows in enumerate((8, 4, 4)))
    fused = qkv.make_shard([q, k, v], 1, 0).flatten(0, 1)
    assert fused[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 2, 2] * 2


def test_weights_are_split_into_files_by_size(tmp_path):
    """No more than the stated size is in one file, so that no more of it is in memory."""
    shape = config()
    (tmp_path / "one").mkdir()
    assert write(tmp_path / "one", shape).files == (WEIGHTS_FILE,)
    assert not (tmp_path / "one" / WEIGHTS_INDEX_FILE).exists()
    (tmp_path / "many").mkdir()
    written = write(tmp_path / "many", shape, shard_bytes=1000)
    assert len(written.files) > 2
    assert list(written.files) == sorted(path.name for path in (tmp_path / "many").glob("*.safetensors"))
    for file in written.files:
        held = load_file(tmp_path / "many" / file)
        assert len(held) == 1 or sum(tensor.nbytes for tensor in held.values()) <= 1000
    index = json.loads((tmp_path / "many" / WEIGHTS_INDEX_FILE).read_text())
    assert index["metadata"]["total_size"] == sum(hf_tensor_bytes(shape, torch.float32).values())
    with open_tensor_folder(tmp_path / "many") as opened:
        for name, tensor in weights(shape):
            assert torch.equal(opened.read_tensor(name), tensor)
    check_model_folder(tmp_path / "many", shape)


def test_each_shard_is_freed_before_the_next_is_written(tmp_path):
    """Otherwise a host would hold the model twice."""
    shape, alive, most = config(), [], 0

    def stream():
        nonlocal most
        for name, size in hf_tensor_shapes(shape).items():
            tensor = torch.zeros(size)
            alive.append(torch.utils.weak.WeakTensorKeyDictionary({tensor: name}))
            most = max(most, sum(tensor.nbytes for each in alive for tensor in each))
            yield NamedWeight(name, tensor)

    write_tensors(stream(), hf_tensor_bytes(shape, torch.float32), tmp_path, shard_bytes=1000)
    assert most <= 1000 + 2 * max(hf_tensor_bytes(shape, torch.float32).values())


def test_undeclared_tensors_are_refused(tmp_path):
    announced = dict(list(hf_tensor_bytes(config(), torch.float32).items())[:-1])
    with pytest.raises(ValueError, match="do not match the given sizes"):
        write_tensors(weights(config()), announced, tmp_path, 1 << 30)


def cut_off(folder):
    path = folder / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def no_header(folder):
    (folder / "model-00001-of-00003.safetensors").write_bytes(b"not safetensors")


def other_shape(folder):
    path = folder / "model-00003-of-00003.safetensors"
    save_file({name: torch.zeros(3, 3) for name in load_file(path)}, path)


def of_integers(folder):
    path = folder / "model-00003-of-00003.safetensors"
    save_file({name: tensor.to(torch.int8) for name, tensor in load_file(path).items()}, path)


DAMAGE = {
    "a file is missing": (lambda folder: (folder / "model-00002-of-00003.safetensors").unlink(), "is missing"),
    "a file is cut off": (cut_off, "damaged or cut off"),
    "a file is not safetensors": (no_header, "damaged or cut off"),
    "tensors have other shapes": (other_shape, r"has shape \(3, 3\), config.json says"),
    "tensors are not floats": (of_integers, "is I8, and weights are one of"),
    "the index names no files": (
        lambda f: (f / WEIGHTS_INDEX_FILE).write_text('{"weight_map": 3}'),
        "is not an index of tensors",
    ),
    "the index is cut off": (lambda f: (f / WEIGHTS_INDEX_FILE).write_text('{"weight_'), "is not an index of tensors"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused_with_one_sentence(tmp_path, damage):
    shape = config()
    write(tmp_path, shape, shard_bytes=sum(hf_tensor_bytes(shape, torch.float32).values()) // 3 + 200)
    harm, message = DAMAGE[damage]
    harm(tmp_path)
    with pytest.raises(DamagedModelFolderError, match=message):
        check_model_folder(tmp_path, shape)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "no tensor model.layers.2.*different models"),
        ({"num_hidden_layers": 1}, "an unexpected model.layers.1"),
        ({"family": QWEN_FAMILIES["qwen3"]}, "q_norm"),
        ({"hidden_size": 16, "head_dim": 4}, "has shape"),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path, changes, message):
    write(tmp_path, config())
    with pytest.raises(UserError, match=message):
        check_model_folder(tmp_path, config(**changes))


def test_an_output_layer_of_a_tied_model_is_ignored(tmp_path):
    """Many published folders have it."""
    write(tmp_path, config())
    check_model_folder(tmp_path, config(tie_word_embeddings=True))
