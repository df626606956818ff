"""Tokens per second of one fine-tuning step: this learner against plain Hugging Face and torch, taken in turns so that
a busy machine is busy for both.

    python tests/bench/learner_vs_hugging_face.py [threads] [rounds]
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import transformers

from learner.messages import SftBatch
from learner.rank import LearnerRank
from learner.settings import LearnerSettings

SEQUENCES, SHORTEST, LONGEST, VOCABULARY = 32, 80, 100, 720


def batch(rng) -> SftBatch:
    made = []
    for length in rng.integers(SHORTEST, LONGEST, SEQUENCES):
        mask = (np.arange(length) > 0.55 * length).astype(np.uint8)
        made.append((rng.integers(0, VOCABULARY, length).astype(np.int32), mask))
    return SftBatch(made, 1e-3)


class HuggingFace:
    """The fastest plain version: padded once, only predicting rows multiplied with the vocabulary, fused Adam."""

    def __init__(self, folder: str, attention: str) -> None:
        self.model = transformers.Qwen3ForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention
        )
        self.adam = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def sft(self, given: SftBatch) -> None:
        longest = max(len(ids) for ids, _ in given.sequences)
        ids = torch.zeros(len(given.sequences), longest, dtype=torch.long)
        mask = torch.zeros(len(given.sequences), longest, dtype=torch.bool)
        for row, (own_ids, own_mask) in enumerate(given.sequences):
            ids[row, : len(own_ids)] = torch.from_numpy(own_ids)
            mask[row, : len(own_ids)] = torch.from_numpy(own_mask) > 0
        hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][mask[:, 1:]]
        logprobs = self.model.lm_head(hidden).log_softmax(-1).gather(1, ids[:, 1:][mask[:, 1:]][:, None])
        self.adam.zero_grad()
        (-logprobs.mean()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = given.lr
        self.adam.step()


def main(threads: int = 2, rounds: int = 25) -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        transformers.Qwen3ForCausalLM(
            transformers.Qwen3Config(
                vocab_size=VOCABULARY, hidden_size=160, intermediate_size=512, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=4, head_dim=32, tie_word_embeddings=True,
            )
        ).save_pretrained(folder)  # fmt: skip
        ours = LearnerRank(LearnerSettings(model_path=folder, threads=threads))
        ours.setup()
        contestants = {
            "longshore": ours,
            "Hugging Face eager": HuggingFace(folder, "eager"),
            "Hugging Face sdpa": HuggingFace(folder, "sdpa"),
        }
        rng, seconds = np.random.default_rng(0), {name: [] for name in contestants}
        for turn in range(rounds + 3):
            given = batch(rng)
            for name, contestant in contestants.items():
                began = time.perf_counter()
                contestant.sft(given)
                if turn >= 3:
                    seconds[name].append(time.perf_counter() - began)
        tokens = SEQUENCES * (SHORTEST + LONGEST - 1) / 2
        for name, taken in seconds.items():
            median, best = statistics.median(taken), min(taken)
            sys.stdout.write(
                f"{name:20s} median {1e3 * median:7.1f} ms {tokens / median:8.0f} tokens/s   "
                f"best {1e3 * best:7.1f} ms {tokens / best:8.0f} tokens/s\n"
            )
        ours.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
