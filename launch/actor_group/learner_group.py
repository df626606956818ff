"""The learner's ranks as one: every rank makes every call, rank 0 answers.

A call ends when all have answered, when one has died and the others had their chance to say so, or at its deadline.
Ranks that have not answered by then are named, and every rank that still can writes its stacks into the run directory
before anybody kills it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, cast

from actors.runtime.placement_groups import PlacementBundle
from actors.runtime.remote import ActorOptions, Remote, ResultRef, spawn_actor
from actors.runtime.remote_errors import RemoteError
from launch.config import NegativeControl, RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from learner.rank import LearnerRank
from learner.settings import TrainerSettings
from learner.spec import LearnerSpec
from protocol.processes.loopback import find_free_port
from protocol.processes.stack_dumps import request_stack_dumps

P = ParamSpec("P")
R = TypeVar("R")

_WRITERS = 2
"""What a learner writes beside its steps: one publication and one checkpoint."""
_OTHERS_S = 10.0
"""Once a rank has failed: longest wait for the others, whose answers tell which of them is the cause."""
_EXCHANGES = ("gloo", "NCCL", "ProcessGroup")
"""Words in what torch raises where an exchange with another rank has failed."""


def learner_spec(config: RunConfig, model_path: Path) -> LearnerSpec:
    """What each rank of the run's learner is built from."""
    return LearnerSpec(
        model_path=str(model_path),
        trainer=config.learner,
        lora=config.lora,
        objective=config.objective,
        staleness=config.staleness,
        temperature=config.agent.temperature,
        seed=config.run.seed,
        total_steps=config.run.steps,
        zero_learning_rate=config.run.negative_control is NegativeControl.LR0,
        shuffle_rewards=config.run.negative_control is NegativeControl.SHUFFLED,
        publish_adapters=config.publish_adapters,
    )


def learner_environment(learner: TrainerSettings) -> dict[str, str]:
    """Of each rank's process.  One that is to use the CPU sees no GPU, even where there is one."""
    threads = {"OMP_NUM_THREADS": str(learner.threads)}
    return threads if learner.device == "cuda" else threads | {"CUDA_VISIBLE_DEVICES": ""}


def spawn_learner_group(
    spec: LearnerSpec,
    directory: RunDirectory,
    home: ClusterNode,
    *,
    generation: int = 1,
    placement: PlacementBundle | None = None,
    cls: type[LearnerRank] = LearnerRank,
) -> LearnerGroup:
    """Start the ranks, all on one node: a ``generation`` for each start in one attempt."""
    port, learner = find_free_port(), spec.trainer
    stacks = tuple(directory.logs / f"learner-{rank}.{generation}.stacks" for rank in range(learner.ranks))
    ranks = tuple(
        spawn_actor(
            cls,
            ActorOptions(
                name=f"{directory.run_id}/{directory.attempt}.{generation}/learner-{rank}",
                node_id=home.ray_id,
                bundle=placement,
                num_gpus=1 if learner.device == "cuda" else 0,
                concurrent_calls=_WRITERS,
                env=learner_environment(learner),
                log=directory.log_place(f"learner-{rank}", home.name),
            ),
            spec,
            rank,
            learner.ranks,
            "127.0.0.1",
            port,
            stacks=str(stacks[rank]),
        )
        for rank in range(learner.ranks)
    )
    return LearnerGroup(ranks, learner.call_timeout_s, stacks)


@dataclass(frozen=True, slots=True)
class LearnerGroup:
    ranks: tuple[Remote[LearnerRank], ...]
    call_timeout_s: float
    """No call takes longer; ranks that need more hang."""
    stacks: tuple[Path, ...] = ()
    """Where each rank writes its stacks when it is asked."""

    async def call(self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``method`` on every rank at once.  Raises the death of a rank, which makes the exchanges of the others fail;
        else what a rank raised first; RemoteError when not all have answered in time."""
        return await self._gather_answers(
            method.__name__, [rank.submit(method, *args, **kwargs) for rank in self.ranks]
        )

    async def call_concurrently(
        self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """:meth:`call` for a method that runs beside what is called otherwise."""
        return await self._gather_answers(
            method.__name__, [rank.submit_concurrent(method, *args, **kwargs) for rank in self.ranks]
        )

    async def _gather_answers(self, what: str, refs: Sequence[ResultRef[R]]) -> R:
        answers: list[asyncio.Task[R | None]] = []
        failures: list[Exception] = []
        silent = {ref.actor: None for ref in refs}
        try:
            async with asyncio.timeout(self.call_timeout_s) as limit, asyncio.TaskGroup() as group:
                answers += [group.create_task(_answer(ref, silent, failures, limit)) for ref in refs]
        except TimeoutError as error:
            why = await self._describe_silent_ranks(what, list(silent), failures)
            if all(map(_is_collective_failure, failures)):
                raise RemoteError(next(iter(silent), refs[0].actor), why) from error
        if failures:
            cause = next((each for each in failures if isinstance(each, RemoteError)), failures[0])
            if isinstance(cause, RemoteError):
                await request_stack_dumps(self.stacks)
            if _is_collective_failure(cause):
                raise RemoteError(refs[0].actor, f"{what}: an exchange between ranks failed: {cause}") from cause
            raise cause
        return cast("R", answers[0].result())

    async def _describe_silent_ranks(self, what: str, silent: Sequence[str], failures: Sequence[Exception]) -> str:
        """What is known of ranks that have not answered."""
        states = await request_stack_dumps(self.stacks)
        told = "; ".join(f"{name} {state}" for name, state in states.items())
        limit = (
            f"while others failed in their exchanges with it ({failures[0]})"
            if failures
            else f"within learner.call_timeout_s = {self.call_timeout_s:g} s"
        )
        where = f"; stacks of all ranks: {self.stacks[0].parent}" if self.stacks else ""
        names = ", ".join(name.rpartition("/")[2] for name in silent)
        return f"{what} has not ended {limit}: no answer from {names}{f' ({told})' if told else ''}{where}"


async def _answer(
    ref: ResultRef[R], silent: dict[str, None], failures: list[Exception], limit: asyncio.Timeout
) -> R | None:
    """Where it fails, the other ranks have ``_OTHERS_S`` from then on."""
    try:
        answer = await ref.get()
    except Exception as error:  # noqa: BLE001  # it is raised when it is known whether a rank has died
        failures.append(error)
        limit.reschedule(min(limit.when() or math.inf, asyncio.get_running_loop().time() + _OTHERS_S))
        answer = None
    del silent[ref.actor]
    return answer


def _is_collective_failure(error: Exception) -> bool:
    """Whether a rank could not reach another one: the fault is not its own."""
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _EXCHANGES)
