"""What a forked rank does: functions of (rank, world, port, ...) whose results are pickled back to the test."""

import numpy as np
import torch
import transformers
import transformers.models.qwen2.modeling_qwen2  # these two so that no rank imports them
import transformers.models.qwen3.modeling_qwen3
from safetensors.torch import load_file

import learner.checkpoint
import learner.publish
import learner.sft
import learner.step  # noqa: F401  the first to import megatron
from learner.rank import LearnerRank


def calls(rank, world, port, settings, then):
    """A learner rank, set up, and the result of each (method, *arguments) in ``then``."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    found = [getattr(made, name)(*arguments) for name, *arguments in then]
    made.close()
    return found


def trained(rank, world, port, settings, batches):
    """Reports of supervised steps and, from rank 0, the weights after them."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    reports = made.sft_run(batches)
    weights = {name: weight.numpy() for name, weight in made._export()}
    made.close()
    return reports, weights if rank == 0 else {}


def survives(rank, world, port, settings, attempt, error):
    """Digest before and after a call that must raise ``error``, and its message."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    before = made.weights_digest()
    name, *arguments = attempt
    try:
        getattr(made, name)(*arguments)
    except Exception as raised:
        if type(raised).__name__ != error:
            raise
        return before, made.weights_digest(), str(raised)
    return before, made.weights_digest(), ""


def make_model(rank, world, port, folder, shape, seed=0, max_shard_size="1GB", dtype="float32"):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(**{"model_type": "qwen3", "max_position_embeddings": 512} | shape)
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "bias" in name:
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder, max_shard_size=max_shard_size)


def _logprobs(model, token_ids, temperature=1.0):
    ids = torch.from_numpy(token_ids).long()[None]
    logits = model(input_ids=ids).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]


def reference_sft(rank, world, port, folder, batches, settings):
    """(loss, gradient norm) of plain Hugging Face and torch, one sequence at a time, and the weights after."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adam = torch.optim.AdamW(model.parameters(), betas=settings.betas, eps=settings.eps, weight_decay=0.0)
    found = []
    for batch in batches:
        count = sum(int(mask[1:].sum()) for _, mask in batch.sequences)
        adam.zero_grad()
        loss = sum(
            -(_logprobs(model, ids) * torch.from_numpy(mask[1:]).float()).sum() / count for ids, mask in batch.sequences
        )
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_grad)
        for group in adam.param_groups:
            group["lr"] = batch.lr
        adam.step()
        found.append((loss.item(), norm.item()))
    return found, {name: weight.numpy() for name, weight in model.state_dict().items()}


def reference_logprobs(rank, world, port, folder, sequences, temperature=1.0):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return [
            np.concatenate([[0], _logprobs(model, ids, temperature).numpy()]).astype(np.float32) for ids in sequences
        ]


def read_weights(rank, world, port, folder):
    """Through transformers, as a user would load a published version."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return {name: weight.float().numpy() for name, weight in model.state_dict().items()}


def read_file(rank, world, port, path):
    return {name: (str(weight.dtype), weight.float().numpy()) for name, weight in load_file(path).items()}
