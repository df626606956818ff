"""What a forked rank does: functions of (rank, world, port, ...) whose results are pickled back to the test."""

import resource
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import transformers
import transformers.models.qwen3.modeling_qwen3  # so that no rank imports it
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
    found = _call(made, then)
    made.close()
    return found


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


def _call(made, then):
    return [getattr(made, name)(*arguments) for name, *arguments in then]


def saves_beside_steps(rank, world, port, settings, folder, before, during):
    """What was written, and digests of weights and moments, where steps are taken by another thread meanwhile."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    _call(made, before)
    made.begin_save(folder)
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(made.end_save)
        _call(made, during)
        return writing.result(), made.weights_digest(), made.optimizer_digest()


def saves_without_space(rank, world, port, settings, full, folder, again, then):
    """What a save raises where this rank may write no file larger than a few bytes; then digests of what is saved."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        made.save(folder)
        said = ""
    except Exception as error:  # noqa: BLE001  it is the result
        said = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    _call(made, then)
    made.save(again)
    return said, made.weights_digest(), made.optimizer_digest()


def make_model(rank, world, port, folder, shape, seed=0, max_shard_size="1GB", dtype="float32"):
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(max_position_embeddings=512, **shape)
    model = transformers.Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder, max_shard_size=max_shard_size)


def _logprobs(model, token_ids, temperature=1.0):
    ids = torch.from_numpy(token_ids).long()[None]
    logits = model(input_ids=ids).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]


def reference_sft(rank, world, port, folder, batches, settings):
    """(loss, gradient norm) of plain Hugging Face and torch, one sequence at a time, and the weights after."""
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
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
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return [
            np.concatenate([[0], _logprobs(model, ids, temperature).numpy()]).astype(np.float32) for ids in sequences
        ]


def read_weights(rank, world, port, folder):
    """Through transformers, as a user would load a published version."""
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype="auto")
    return {name: weight.float().numpy() for name, weight in model.state_dict().items()}


def read_file(rank, world, port, path):
    return {name: (str(weight.dtype), weight.float().numpy()) for name, weight in load_file(path).items()}


def prepass(rank, world, port, settings, samples):
    """Log-probabilities of these samples by a pass of their own."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    found = made._ready.trainer.logprobs(samples)
    made.close()
    return found


def reference_policy_steps(rank, world, port, folder, batches, settings):
    """What decoupled PPO with two updates a batch, M2PO and a k3 penalty to the first weights is, in plain Hugging Face
    and torch, one sequence at a time: (loss, largest gradient norm) of each batch, and the weights after."""
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    frozen = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adam = torch.optim.AdamW(
        model.parameters(), lr=settings.lr, betas=settings.betas, eps=settings.eps, weight_decay=0.0
    )
    asked, found = settings.objective, []

    def own(which, sample):
        return _logprobs(which, sample.token_ids)[torch.from_numpy(sample.targets) - 1]

    for samples in batches:
        with torch.no_grad():
            before = {id(sample): own(model, sample) for sample in samples}
            reference = {id(sample): own(frozen, sample) for sample in samples}
        gaps = torch.cat([before[id(s)] - torch.from_numpy(s.columns.behaviour) for s in samples]).square()
        order = gaps.sort().values
        fits = [n for n in range(1, len(order) + 1) if order[:n].mean() <= asked.corrections.m2po]
        largest = order[max(fits) - 1]
        by_cost = sorted(samples, key=lambda sample: -sample.cost)
        halves, loads = ([], []), [0.0, 0.0]
        for sample in by_cost:
            least = loads.index(min(loads))
            halves[least].append(sample)
            loads[least] += sample.cost
        losses, norms = [], []
        for half in halves:
            loss = torch.zeros(())
            for sample in half:
                current, mu = own(model, sample), torch.from_numpy(sample.columns.behaviour)
                advantage, weight = (torch.from_numpy(c) for c in (sample.columns.advantages, sample.columns.weights))
                prox = before[id(sample)]
                ratio = (current - prox).exp()
                value = torch.minimum(ratio * advantage, ratio.clamp(1 - asked.eps_low, 1 + asked.eps_high) * advantage)
                value = torch.where(advantage < 0, value.maximum(asked.dual_clip * advantage), value)
                value = value * (prox - mu).exp().clamp_max(asked.corrections.cap)
                value = value * ((prox - mu).square() <= largest)
                x = reference[id(sample)] - current
                loss = loss - 2 * (weight * (value - asked.kl.coefficient * (x.exp() - 1 - x))).sum()
            adam.zero_grad()
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_grad).item())
            adam.step()
            losses.append(loss.item())
        found.append((sum(losses) / 2, max(norms)))
    return found, {name: weight.numpy() for name, weight in model.state_dict().items()}
