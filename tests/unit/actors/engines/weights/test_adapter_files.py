"""An adapter is judged before a server sees it: what does not fit is taken in silence, or scaled wrongly."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from actors.engines.messages import InvalidWeights
from actors.engines.server.process import server_arguments
from actors.engines.weights.adapter_files import ADAPTER_CONFIG_FILE, adapter_shape, check_adapter
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion
from tests.support.actors.engine_specs import Lora, engine_spec

MANIFEST = WeightManifest(WeightVersion(1), 0, NO_VERSION, "/weights", "", 0, 0)
LORA = Lora(2, 32.0, ("q_proj", "down_proj"))
MODEL = ModelShape(
    {
        "model.embed_tokens.weight": (8, 4),
        "model.layers.0.self_attn.q_proj.weight": (6, 4),
        "model.layers.0.self_attn.q_proj.bias": (6,),
        "model.layers.0.self_attn.k_proj.weight": (3, 4),
        "model.layers.0.mlp.down_proj.weight": (4, 9),
    },
    vocabulary=8,
    tied=True,
)
Q = "base_model.model.model.layers.0.self_attn.q_proj"
DOWN = "base_model.model.model.layers.0.mlp.down_proj"
SHAPES = {
    f"{Q}.lora_A.weight": (2, 4),
    f"{Q}.lora_B.weight": (6, 2),
    f"{DOWN}.lora_A.weight": (2, 9),
    f"{DOWN}.lora_B.weight": (4, 2),
}
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 32, "target_modules": ["down_proj", "q_proj"]}


def write(folder: Path, shapes: dict[str, tuple[int, ...]] = SHAPES, config: object = CONFIG) -> WeightManifest:
    folder.mkdir()
    file = folder / "adapter_model.safetensors"
    save_file({name: np.ones(shape, np.float32) for name, shape in shapes.items()}, file)
    (folder / ADAPTER_CONFIG_FILE).write_text(json.dumps(config))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return WeightManifest(WeightVersion(5), 1, NO_VERSION, str(folder), digest, len(shapes), file.stat().st_size)


def test_an_adapter_has_matrices_for_exactly_its_target_projections() -> None:
    assert adapter_shape(LORA, MODEL).shapes == SHAPES


def test_a_whole_adapter_passes(tmp_path: Path) -> None:
    check_adapter(write(tmp_path / "new"), MODEL, LORA)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({name: shape for name, shape in SHAPES.items() if "lora_B" not in name}, "2 tensors missing"),
        (SHAPES | {f"{Q.replace('q_', 'k_')}.lora_A.weight": (2, 4)}, "1 unknown tensors"),
        (SHAPES | {f"{Q}.lora_A.weight": (3, 4)}, r"lora_A.weight has shape \(3, 4\), the model \(2, 4\)"),
    ],
)
def test_adapter_matrices_that_do_not_match_the_run_are_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], says: str
) -> None:
    with pytest.raises(InvalidWeights, match=says):
        check_adapter(write(tmp_path / "new", shapes), MODEL, LORA)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG | {"lora_alpha": 16},
        CONFIG | {"r": 4},
        CONFIG | {"peft_type": "IA3"},
        CONFIG | {"target_modules": ["q_proj"]},
        {key: value for key, value in CONFIG.items() if key != "r"},
        [],
    ],
    ids=["scale", "rank", "type", "targets", "no rank", "no object"],
)
def test_an_adapter_configuration_that_does_not_match_the_run_is_refused(tmp_path: Path, config: object) -> None:
    """The digest does not cover it, and the server scales by it."""
    with pytest.raises(InvalidWeights, match=r"version 0\.5"):
        check_adapter(write(tmp_path / "new", config=config), MODEL, LORA)


def test_an_adapter_with_a_changed_bit_is_refused(tmp_path: Path) -> None:
    manifest = write(tmp_path / "new")
    file = tmp_path / "new" / "adapter_model.safetensors"
    save_file({name: matrix * 2 for name, matrix in load_file(file).items()}, file)
    with pytest.raises(InvalidWeights, match="digest"):
        check_adapter(manifest, MODEL, LORA)


@pytest.mark.parametrize(("device", "backend"), [("cpu", True), ("cuda", False)])
def test_a_server_has_slots_for_all_adapters_and_one_for_requests_without_adapter(device: str, backend: bool) -> None:
    """Without the last a probe would push an adapter out of a server that is full."""
    arguments = server_arguments(engine_spec(Path(), lora=LORA, max_adapters=3, device=device), MANIFEST, 1)
    limits = [name for name in arguments if name.startswith(("--max-lora", "--max-loaded"))]
    options = {name: arguments[arguments.index(name) + 1] for name in limits}
    assert options == {"--max-lora-rank": "2", "--max-loaded-loras": "4", "--max-loras-per-batch": "4"}
    first = arguments.index("--lora-target-modules") + 1
    assert arguments[first : first + 2] == ["q_proj", "down_proj"]
    assert ("torch_native" in arguments) is backend
