"""The work of a forked rank: functions of (rank, world, port, ...) whose results are pickled back to the test."""

import ast
import inspect
import json
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
import transformers
import transformers.models.qwen2.modeling_qwen2  # these two so that no rank imports them
import transformers.models.qwen3.modeling_qwen3
from safetensors.torch import load_file
from torch.profiler import ProfilerActivity, profile

import learner.checkpoint.published_weights
import learner.checkpoint.sharded
import learner.models.layers
import learner.training.sft
import learner.training.trainer
from learner.checkpoint.published_weights import digest_weights
from learner.models.flops import count_training_flops
from learner.models.logprobs import token_logprobs
from learner.models.qwen import read_qwen_config
from learner.models.weight_conversion import NamedWeight
from learner.rank import LearnerRank


def calls(rank, world, port, settings, then):
    """A learner rank, set up, and the result of each (method, *arguments) in ``then``."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    found = _call(made, then)
    made.close()
    return found


def trained(rank, world, port, settings, batches):
    """Reports of supervised steps and, from rank 0, the weights and adapters after them."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    reports = made.sft_run(batches)
    weights = {
        name: weight.numpy()
        for name, weight in (*made.ready.publisher.export(), *made.ready.publisher.export_adapters())
    }
    made.close()
    return reports, weights if rank == 0 else {}


def _peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def step_peak_bytes(rank, world, port, settings, batch):
    """The most that tensors held at once in a second step beyond what they held before it, counted by torch's profiler:
    what the system reports of a process also has what its allocator keeps."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    made.sft(batch)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        made.sft(batch)
    changes = [event.nbytes() for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(changes))


def logprob_peak_bytes(rank, world, port, tokens, vocabulary, chunk_bytes):
    """Return the memory that log-probabilities, their entropy and gradient need beside inputs and gradients;
    ``chunk_bytes`` 0 uses torch's own over the whole matrix."""

    def run(tokens):
        hidden, labels = torch.randn(tokens, 8, requires_grad=True), torch.randint(0, vocabulary, (tokens,))
        before = _peak_bytes()
        if chunk_bytes:
            found = token_logprobs(hidden, weight, labels, chunk_bytes=chunk_bytes, entropy=True).logprobs
        else:
            found = (hidden @ weight.t()).log_softmax(-1).gather(1, labels[:, None])
        found.sum().backward()
        return _peak_bytes() - before

    weight = torch.randn(vocabulary, 8, requires_grad=True)
    run(1)  # libraries take memory of their own at their first use
    return run(tokens)


def bytes_asleep(rank, world, port, settings, batch, then=("offload_to_host",)):
    """Memory that weights, gradients and optimizer still have after a step and, where it is given, another call."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    made.sft(batch)
    _call(made, [then] if then else [])
    trainer = made.ready.trainer
    state = [x for values in trainer.optimizer.adam.state.values() for x in values.values()]
    held = [*trainer.model.parameters(), *(p.main_grad for p in trainer.model.parameters()), *state]
    return sum(tensor.untyped_storage().nbytes() for tensor in held)


def numbers_held(rank, world, port, settings, batch):
    """How many numbers there are in this rank's trained parameters, gradients, Adam's state and its main weights."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    made.sft(batch)
    trainer = made.ready.trainer
    return {
        "trained": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        "gradients": sum(buffer.grad_data.numel() for buffer in trainer.wrapped.buffers),
        "own": sum(tensor.numel() for tensor in trainer.optimizer.own_tensors() if tensor.ndim),
    }


def logprobs_beside_reference(rank, world, port, settings, batch, samples):
    """Log-probabilities by the reference that is kept after a step, then by the trained weights, then before."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    made.sft(batch)
    trainer = made.ready.trainer
    before = trainer.logprobs(samples)
    made.freeze_reference("nowhere", True)
    with made.ready.reference.activated():
        frozen = trainer.logprobs(samples)
    return frozen, trainer.logprobs(samples), before


def calls_of_layers(rank, world, port, settings):
    """Keyword arguments that megatron makes each of the layer classes with."""
    layers, found = learner.models.layers.choose_layer_classes(), {}

    def recording(name, made):
        def make(self, *args, **kwargs):
            assert len(args) == (0 if name == "norm" else 2)
            found.setdefault(name, set()).update(kwargs)
            made.__init__(self, *args, **kwargs)

        return type(name, (made,), {"__init__": make})

    learner.models.layers.choose_layer_classes = lambda: type(layers)(
        *(recording(name, made) for name, made in layers._asdict().items())
    )
    rank = LearnerRank(settings, rank, world, "127.0.0.1", port)
    rank.setup()
    return found


def parameters_of_transformer_engine(rank, world, port):
    """Names that its layers' constructors take, read from megatron's source: without it they are no classes."""
    import megatron.core.extensions

    source = Path(inspect.getfile(megatron.core.extensions)).with_name("transformer_engine.py").read_text()
    wanted = {"TEColumnParallelLinear": "column", "TERowParallelLinear": "row", "TENorm": "norm"}
    found = {}
    for made in ast.walk(ast.parse(source)):
        if isinstance(made, ast.ClassDef) and made.name in wanted:
            (first, *_) = (n for n in made.body if isinstance(n, ast.FunctionDef) and n.name in {"__init__", "__new__"})
            found[wanted[made.name]] = {each.arg for each in (*first.args.args, *first.args.kwonlyargs)}
    return found


def logits(rank, world, port, folder, sequence, adapter=None):
    """Load the transformers model of a folder with the adapters of another one."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    if adapter:
        HandWrittenAdapters(model, adapter)
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(sequence).long()[None]).logits[0].numpy()


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
    """The results of the calls of ``then``: methods of the rank, or its optimizer's digest."""
    return [
        optimizer_digest(made) if name == "optimizer_digest" else getattr(made, name)(*arguments)
        for name, *arguments in then
    ]


def optimizer_digest(made):
    """The sha256 of this rank's Adam state, including separate main weights; equal only for bitwise equal states."""
    trainer = made.ready.trainer
    trainer.reload()
    trainer.optimizer.reload()
    adam = trainer.optimizer.adam
    return digest_weights(
        NamedWeight(f"{group}.{index}.{key}", value.detach().to("cpu", copy=True))  # a view prevents offloading
        for group, settings in enumerate(adam.param_groups)
        for index, parameter in enumerate(settings["params"])
        for key, value in sorted({"weight": parameter, **adam.state[parameter]}.items())
    )


def saves_beside_steps(rank, world, port, settings, folder, before, during):
    """Return what was written and digests of weights and moments while another thread takes steps."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    _call(made, before)
    made.begin_save(folder)
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(made.end_save)
        _call(made, during)
        return writing.result(), made.weights_digest(), optimizer_digest(made)


def saves_without_space(rank, world, port, settings, full, folder, again, then):
    """Return the error of a save when this rank may write only a few bytes per file, then digests of what is saved."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        made.save(folder)
        message = ""
    except Exception as error:  # noqa: BLE001  it is the result
        message = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    _call(made, then)
    made.save(again)
    return message, made.weights_digest(), optimizer_digest(made)


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


class HandWrittenAdapters:
    """The model that PEFT builds from one of its folders: the model's own weights frozen, and y + s·B·(A·x)."""

    def __init__(self, model, folder):
        config = json.loads((Path(folder) / "adapter_config.json").read_text())
        self.scale = config["lora_alpha"] / config["r"]
        read = load_file(str(Path(folder) / "adapter_model.safetensors"))
        self.matrices = {name: torch.nn.Parameter(matrix) for name, matrix in read.items()}
        model.requires_grad_(False)
        for name in self.matrices:
            path, matrix, _ = name.removeprefix("base_model.model.").rsplit(".", 2)
            assert path.rpartition(".")[2] in config["target_modules"]
            if matrix == "lora_A":
                model.get_submodule(path).register_forward_hook(partial(self._add, *self._pair(name)))

    def _pair(self, name_of_a):
        return self.matrices[name_of_a], self.matrices[name_of_a.replace("lora_A", "lora_B")]

    def _add(self, a, b, _layer, inputs, output):
        return output + self.scale * (inputs[0] @ a.t() @ b.t())

    def merged(self, weights):
        """These and the matrices, as a learner tells of them."""
        found = dict(weights)
        for name in self.matrices:
            if "lora_A" in name:
                a, b = self._pair(name)
                found[name.removeprefix("base_model.model.").replace("lora_A.", "")] += self.scale * (b @ a).detach()
        return found | {name: matrix.detach() for name, matrix in self.matrices.items()}


def reference_sft(rank, world, port, folder, batches, settings, adapter=None):
    """(loss, gradient norm) of plain Hugging Face and torch, one sequence at a time, and the weights after; of the
    matrices in the folder ``adapter``, where there is one."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adapters = HandWrittenAdapters(model, adapter) if adapter else None
    trained = list(adapters.matrices.values() if adapters else model.parameters())
    adam = torch.optim.AdamW(trained, betas=settings.trainer.betas, eps=settings.trainer.adam_eps, weight_decay=0.0)
    found = []
    for batch in batches:
        weights = batch.weights or [1.0] * len(batch.sequences)
        weighted = [(w, ids, mask[1:]) for w, (ids, mask) in zip(weights, batch.sequences, strict=True)]
        count = sum(w * int(mask.sum()) for w, _, mask in weighted)
        adam.zero_grad()
        loss = sum(
            -w * (_logprobs(model, ids) * torch.from_numpy(mask).float()).sum() / count for w, ids, mask in weighted
        )
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, settings.trainer.clip_grad)
        for group in adam.param_groups:
            group["lr"] = batch.lr
        adam.step()
        found.append((loss.item(), norm.item()))
    weights = adapters.merged(model.state_dict()) if adapters else model.state_dict()
    return found, {name: weight.numpy() for name, weight in weights.items()}


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


def prepass(rank, world, port, settings, samples, checkpoint=None):
    """Log-probabilities of these samples by a pass of their own, with the weights of a checkpoint."""
    made = LearnerRank(settings, rank, world, "127.0.0.1", port)
    made.setup()
    if checkpoint:
        made.load(checkpoint)
    found = made.ready.trainer.logprobs(samples)
    made.close()
    return found


def reference_policy_steps(rank, world, port, folder, batches, settings):
    """Decoupled PPO with two updates a batch, M2PO and a k3 penalty to the first weights, in plain Hugging Face and
    torch, one sequence at a time: (loss, largest gradient norm) of each batch, and the weights after."""
    model = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    frozen = transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adam = torch.optim.AdamW(
        model.parameters(),
        lr=settings.trainer.lr,
        betas=settings.trainer.betas,
        eps=settings.trainer.adam_eps,
        weight_decay=0.0,
    )
    objective, found = settings.objective, []

    def own(which, sample):
        return _logprobs(which, sample.token_ids)[torch.from_numpy(sample.targets) - 1]

    for samples in batches:
        with torch.no_grad():
            before = {id(sample): own(model, sample) for sample in samples}
            reference = {id(sample): own(frozen, sample) for sample in samples}
        gaps = torch.cat([before[id(s)] - torch.from_numpy(s.columns.behaviour) for s in samples]).square()
        order = gaps.sort().values
        fits = [n for n in range(1, len(order) + 1) if order[:n].mean() <= objective.corrections.m2po]
        largest = order[max(fits) - 1]
        costs = {
            id(s): count_training_flops(read_qwen_config(Path(folder))).count_sequence(len(s.token_ids), len(s.targets))
            for s in samples
        }
        by_cost = sorted(samples, key=lambda sample: -costs[id(sample)])
        halves, loads = ([], []), [0.0, 0.0]
        for sample in by_cost:
            least = loads.index(min(loads))
            halves[least].append(sample)
            loads[least] += costs[id(sample)]
        losses, norms = [], []
        for half in halves:
            loss = torch.zeros(())
            for sample in half:
                current, mu = own(model, sample), torch.from_numpy(sample.columns.behaviour)
                advantage, weight = (torch.from_numpy(c) for c in (sample.columns.advantages, sample.columns.weights))
                prox = before[id(sample)]
                ratio = (current - prox).exp()
                value = torch.minimum(
                    ratio * advantage,
                    ratio.clamp(1 - objective.policy_loss.eps_low, 1 + objective.policy_loss.eps_high) * advantage,
                )
                value = torch.where(advantage < 0, value.maximum(objective.policy_loss.dual_clip * advantage), value)
                value = value * (prox - mu).exp().clamp_max(objective.corrections.cap)
                value = value * ((prox - mu).square() <= largest)
                x = reference[id(sample)] - current
                loss = loss - 2 * (weight * (value - objective.kl.coefficient * (x.exp() - 1 - x))).sum()
            adam.zero_grad()
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), settings.trainer.clip_grad).item())
            adam.step()
            losses.append(loss.item())
        found.append((sum(losses) / 2, max(norms)))
    return found, {name: weight.numpy() for name, weight in model.state_dict().items()}
