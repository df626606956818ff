"""Adam behind megatron's optimizer: gradient norm over all ranks, clipping, main weights in float32 for bfloat16."""

from __future__ import annotations

import math
from typing import Any

import torch

from learner import seam
from learner.megatron import OptimizerConfig, get_megatron_optimizer
from learner.model import torch_dtype
from learner.settings import LearnerSettings


class Optimizer:
    """One Adam over this rank's parameters.  The learning rate is said at each step."""

    def __init__(self, wrapped: Any, settings: LearnerSettings) -> None:
        dtype = torch_dtype(settings.dtype)
        with seam.quiet(), seam.cuda_is_cpu():
            self.megatron: Any = get_megatron_optimizer(
                OptimizerConfig(
                    optimizer="adam",
                    lr=settings.lr,
                    min_lr=settings.lr,
                    weight_decay=settings.weight_decay,
                    adam_beta1=settings.betas[0],
                    adam_beta2=settings.betas[1],
                    adam_eps=settings.eps,
                    clip_grad=settings.clip_grad,
                    bf16=dtype == torch.bfloat16,
                    params_dtype=dtype,
                    use_distributed_optimizer=settings.distributed_optimizer,
                ),
                [wrapped],
                use_gloo_process_groups=False,
            )
        chained = getattr(self.megatron, "chained_optimizers", [self.megatron])
        if len(chained) != 1:
            raise RuntimeError(f"megatron built {len(chained)} optimizers for one dense model")
        self.inner: Any = chained[0]
        for group in self.adam.param_groups:
            # megatron leaves this product to its schedule, which is not used here.
            group["weight_decay"] = settings.weight_decay * group["wd_mult"]
            if isinstance(self.adam, torch.optim.AdamW):
                group["fused"], group["foreach"] = True, False

    @property
    def adam(self) -> torch.optim.Optimizer:
        return self.inner.optimizer

    def step(self, lr: float) -> float:
        """One update; returns the gradient norm before clipping.  Where that is not finite, nothing is updated."""
        for group in self.adam.param_groups:
            group["lr"] = lr
        with torch.no_grad():
            self.megatron.prepare_grads()
            norm: float = self.megatron.clip_grad_norm(self.megatron.config.clip_grad)
            if math.isfinite(norm):
                self.megatron.step_with_ready_grads()
        return norm

    def zero(self) -> None:
        self.megatron.zero_grad()

    def reset(self) -> None:
        """Forget all moments."""
        self.adam.state.clear()

    def make_state(self) -> None:
        """Zero moments where there are none yet, so that a fresh optimizer can be saved or loaded into."""
        for group in self.adam.param_groups:
            for parameter in group["params"]:
                if not self.adam.state[parameter]:
                    self.adam.state[parameter] = {
                        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }
