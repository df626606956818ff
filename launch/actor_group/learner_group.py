"""The learner's ranks as one actor: every rank executes every call, and rank 0 returns the result.

A call ends when all ranks have answered, when one has failed and the others had time to answer, or at its deadline.
Ranks that have not answered by then are named, and every rank that still can writes its stacks to the run directory
before it is killed.
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
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from launch.settings.run import NegativeControl
from learner.rank import LearnerRank
from learner.settings import TrainerSettings
from learner.spec import LearnerSpec
from protocol.processes.loopback import find_free_port
from protocol.processes.stack_dumps import request_stack_dumps

P = ParamSpec("P")
R = TypeVar("R")

_CONCURRENT_WRITES = 2
"""Number of calls that run in parallel with a step: one publication and one checkpoint."""
OTHER_RANKS_S = 10.0
"""Longest wait for the other ranks once one has failed; their errors show which rank is the cause."""
_COLLECTIVE_WORDS = ("gloo", "NCCL", "ProcessGroup")
"""Words in torch's errors of a failed collective with another rank."""


def learner_spec(config: RunConfig, model_path: Path) -> LearnerSpec:
    """Return the spec of the run's learner, from which each rank is built."""
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
    """Return the environment of each rank's process; a learner on the CPU sees no GPU."""
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
    """Start the ranks, all on one node; each start of the ranks within a start of the run is a new ``generation``."""
    port, learner = find_free_port(), spec.trainer
    stacks = tuple(directory.logs / f"learner-{rank}.{generation}.stacks" for rank in range(learner.ranks))
    ranks = tuple(
        spawn_actor(
            cls,
            ActorOptions(
                name=f"{directory.run_id}/{directory.start_number}.{generation}/learner-{rank}",
                node_id=home.ray_id,
                bundle=placement,
                num_gpus=1 if learner.device == "cuda" else 0,
                concurrent_calls=_CONCURRENT_WRITES,
                env=learner_environment(learner),
                log=directory.process_log(f"learner-{rank}", home.name),
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
    """Longest duration of a call; ranks that need more count as hung."""
    stacks: tuple[Path, ...] = ()
    """File that each rank writes its stacks to on request."""

    async def call(self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``method`` on every rank at the same time.  Raises the death of a rank, which makes the others'
        collectives fail, else the first error of a rank; RemoteError if not all ranks answer in time."""
        return await self._gather_answers(
            method.__name__, [rank.submit(method, *args, **kwargs) for rank in self.ranks]
        )

    async def call_concurrently(
        self, method: Callable[Concatenate[LearnerRank, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call ``method`` as :meth:`call` does, in parallel with other calls."""
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
                raise RemoteError(refs[0].actor, f"{what}: a collective between ranks failed: {cause}") from cause
            raise cause
        return cast("R", answers[0].result())

    async def _describe_silent_ranks(self, what: str, silent: Sequence[str], failures: Sequence[Exception]) -> str:
        """Return a line about the ranks that have not answered; all ranks write their stacks."""
        states = await request_stack_dumps(self.stacks)
        written = "; ".join(f"{name} {state}" for name, state in states.items())
        limit = (
            f"while others failed in collectives with it ({failures[0]})"
            if failures
            else f"within learner.call_timeout_s = {self.call_timeout_s:g} s"
        )
        where = f"; stacks of all ranks: {self.stacks[0].parent}" if self.stacks else ""
        names = ", ".join(name.rpartition("/")[2] for name in silent)
        return f"{what} has not ended {limit}: no answer from {names}{f' ({written})' if written else ''}{where}"


async def _answer(
    ref: ResultRef[R], silent: dict[str, None], failures: list[Exception], limit: asyncio.Timeout
) -> R | None:
    """Return a rank's answer; if it fails, the other ranks have ``OTHER_RANKS_S`` more seconds."""
    try:
        answer = await ref.get()
    except Exception as error:  # noqa: BLE001  it is raised when it is known whether a rank has died
        failures.append(error)
        limit.reschedule(min(limit.when() or math.inf, asyncio.get_running_loop().time() + OTHER_RANKS_S))
        answer = None
    del silent[ref.actor]
    return answer


def _is_collective_failure(error: Exception) -> bool:
    """Return whether a rank failed only because it could not reach another one."""
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _COLLECTIVE_WORDS)
