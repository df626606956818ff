"""Tiny Qwen3 folders for the engine's tests: one random model, and two that say which weights are at work."""

import hashlib
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

VOCABULARY = 320
SAYS_A, SAYS_B = 100, 200


def write_random(folder: Path) -> None:
    """A float32 model whose distributions are far from uniform."""
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.15,
        eos_token_id=2,
        bos_token_id=1,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def write_parrot(source: Path, folder: Path, token: int) -> None:
    """The model in ``source``, changed to say ``token`` for ever."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if "proj" in name:
            tensor.mul_(0.1)
    embedding = tensors["model.embed_tokens.weight"]
    embedding.mul_(0.1)
    embedding[:, 0] = 1.0
    embedding[token, 0] = 20.0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def manifest(version: int, folder: Path) -> WeightManifest:
    file = folder / "model.safetensors"
    data = file.read_bytes() if file.exists() else b""
    return WeightManifest(
        WeightVersion(version), version, NO_VERSION, str(folder), hashlib.sha256(data).hexdigest(), 24, len(data)
    )


def reference_logprobs(folder: Path, prompt: list[int], sampled: list[int], temperature: float) -> list[float]:
    """Hugging Face's log softmax(logits / temperature) of each sampled token, in float32."""
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([prompt + sampled])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(sampled)[:, None])[:, 0].tolist()
