"""The demo model: an ordinary Hugging Face folder that AutoModelForCausalLM, AutoTokenizer and SGLang load."""

from __future__ import annotations

from pathlib import Path

from launch.data.demo.tokenizer import train_tokenizer
from launch.settings.data import ModelSettings

CONTEXT_TOKENS = 1024


def build_demo_model(folder: Path, model: ModelSettings, seed: int, positions: int = CONTEXT_TOKENS) -> int:
    """Write a tokenizer and a randomly initialised Qwen3 model to ``folder``; return its parameter count.

    The vocabulary is exactly the tokenizer's, so every sampled id can be decoded.
    """
    from launch.data.demo.hugging_face import GenerationConfig, Qwen3Config, save_model, save_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokens = save_tokenizer(train_tokenizer(model.vocab_tokens), folder)
    config = Qwen3Config(
        vocab_size=tokens,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.heads,
        head_dim=model.head_dim,
        max_position_embeddings=positions,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=0,
        pad_token_id=0,
        eos_token_id=2,
    )
    generation = GenerationConfig(do_sample=True, temperature=1.0, bos_token_id=0, pad_token_id=0, eos_token_id=2)
    return save_model(folder, config, generation, seed)
