"""Simulated workers and episodes around the real scheduler, load balancer and journal."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors.buffer.group_progress import read_group_progress
from actors.engines.routing.load_balancer import LoadBalancer
from actors.scheduler.core import SchedulerCore
from actors.scheduler.request_queue import AssignedRequest
from actors.scheduler.settings import FailedRequestOutcome, SchedulerRunState
from launch.simulate.episode_workload import EpisodePlan, EpisodeWorkload
from launch.simulate.simulated_engines import SampledSpan, SimulatedEngine, SimulatedRequest
from launch.simulate.virtual_clock import VirtualClock
from protocol.journal import AppendOutcome, Journal, TrajectoryArrival
from protocol.trajectory import EpisodeStatus, InfraFailure, RolloutRequest, make_trajectory_id

_DEADLINE_CHECK_S = 60.0
_RETRY_S = 0.2
_REQUEST_SIZE = 1
"""Size of every request for the load balancer, as prompts are not simulated."""
_PAYLOAD = b"\0"
"""Payload of every trajectory: nothing depends on its bytes."""


@dataclass(slots=True, eq=False)
class SimulatedEpisode:
    """One episode, which owns its sampling requests."""

    rollout: SimulatedRollout
    rollout_request: RolloutRequest
    plan: EpisodePlan
    worker: SimulatedWorker
    begun_s: float
    session: str
    turn: int = 0
    request: SimulatedRequest | None = None
    engine: int = -1
    spans: list[tuple[int, SampledSpan]] = field(default_factory=list[tuple[int, SampledSpan]])
    """(turn, sampled tokens) in order."""
    ended_s: float = 0.0
    alive: bool = True

    def request_sampled(self, request: SimulatedRequest) -> None:
        self.rollout.turn_sampled(self, request)

    def request_refused(self, request: SimulatedRequest) -> None:
        self.rollout.turn_refused(self, request)


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    node: int
    capacity: int
    placement: LoadBalancer
    incarnation: int = 0
    alive: bool = True
    waiting: bool = False
    episodes: dict[SimulatedEpisode, None] = field(default_factory=dict[SimulatedEpisode, None])

    @property
    def name(self) -> str:
        return f"worker-{self.node}#{self.incarnation}"

    @property
    def free(self) -> int:
        return self.capacity - len(self.episodes) if self.alive else 0


class SimulatedRollout:
    """Runs episodes on simulated workers; ``on_groups_closed`` tells the learner that it may have a batch."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        scheduler: SchedulerCore,
        journal: Journal,
        engines: Sequence[SimulatedEngine],
        workload: EpisodeWorkload,
        capacities: Sequence[int],
        on_groups_closed: Callable[[], None],
    ) -> None:
        self._clock, self._scheduler, self._journal, self._engines = clock, scheduler, journal, engines
        self._workload, self._on_groups_closed = workload, on_groups_closed
        self.workers = [
            SimulatedWorker(
                node, count, LoadBalancer(len(engines), first=zlib.crc32(f"worker-{node}".encode()) % len(engines))
            )
            for node, count in enumerate(capacities)
        ]
        self._waiting: deque[SimulatedWorker] = deque()
        self.arrived: dict[str, SimulatedEpisode] = {}
        """Arrived episodes by trajectory, until they are trained or dropped."""
        self.lost_tokens = 0
        """Number of tokens sampled by lost episodes and requests."""
        self._seen = 0

    def start(self) -> None:
        for worker in self.workers:
            self._request_work(worker)
        self._clock.schedule(_DEADLINE_CHECK_S, self._check_deadlines)

    def set_run_state(self, run_state: SchedulerRunState) -> None:
        self._scheduler.set_run_state(run_state)
        self.serve_waiting_workers()

    def read_journal(self) -> None:
        """Apply the journal's progress to the scheduler, as its own loop does."""
        progress = read_group_progress(self._journal, self._seen)
        self._seen = progress.seq
        self._scheduler.apply_progress(progress, self._clock.now)
        for closing in progress.closed:
            if closing.outcome.drop_reason is not None:
                for sample in closing.rewards:
                    self.arrived.pop(make_trajectory_id(closing.group, sample), None)
        self.serve_waiting_workers()

    def serve_waiting_workers(self) -> None:
        """Give rollout requests to waiting workers, first come first served."""
        while self._waiting:
            worker = self._waiting[0]
            if worker.free > 0 and not self._start_episodes(worker):
                return
            if worker.free <= 0:
                self._waiting.popleft()
                worker.waiting = False

    @property
    def in_flight(self) -> int:
        return sum(len(worker.episodes) for worker in self.workers)

    # -- a worker ------------------------------------------------------------------------------------------------

    def _request_work(self, worker: SimulatedWorker) -> None:
        if worker.free > 0 and not worker.waiting:
            worker.waiting = True
            self._waiting.append(worker)
        self.serve_waiting_workers()

    def _start_episodes(self, worker: SimulatedWorker) -> bool:
        """Start episodes up to the worker's free capacity; return false if there is no rollout request."""
        scheduler, now = self._scheduler, self._clock.now
        while (plan := scheduler.plan_group(worker.free)) is not None:
            self._journal.open_group(plan, scheduler.groups.task_sampler.state())
            scheduler.mark_opened(plan, now)
        rollout_requests = scheduler.assign_requests(worker.name, worker.free, now)
        for rollout_request in rollout_requests:
            session = rollout_request.attempt_id
            episode = SimulatedEpisode(
                self, rollout_request, self._workload.plan_episode(rollout_request), worker, now, session
            )
            worker.episodes[episode] = None
            self._continue(episode, episode.plan.acquire_s)
        return bool(rollout_requests)

    # -- an episode ----------------------------------------------------------------------------------------------

    def _sample_turn(self, episode: SimulatedEpisode) -> None:
        if not episode.alive:
            return
        turn = episode.plan.turns[episode.turn]
        episode.engine = episode.worker.placement.begin_request(episode.session, _REQUEST_SIZE, self._clock.now)
        episode.request = SimulatedRequest(episode, turn.tokens, turn.generate_s)
        self._engines[episode.engine].submit(episode.request)

    def _continue(self, episode: SimulatedEpisode, wait_s: float) -> None:
        """Schedule the next turn, or the delivery after the last one."""
        if episode.turn < len(episode.plan.turns):
            self._clock.schedule(wait_s, self._sample_turn, episode)
        else:
            self._clock.schedule(wait_s + episode.plan.grade_s, self.deliver, episode)

    def turn_sampled(self, episode: SimulatedEpisode, request: SimulatedRequest) -> None:
        """Continue after a completed turn: with the tool, or with grading."""
        episode.worker.placement.end_request(episode.engine, _REQUEST_SIZE)
        episode.request = None
        for span in request.spans:
            episode.spans.append((episode.turn, span))
        wait_s = episode.plan.turns[episode.turn].tool_s
        episode.turn += 1
        self._continue(episode, wait_s)

    def turn_refused(self, episode: SimulatedEpisode, request: SimulatedRequest) -> None:
        """Retry a turn on another engine after its engine died."""
        if not episode.alive:
            return
        placement, now = episode.worker.placement, self._clock.now
        self.lost_tokens += request.sampled
        episode.request = None
        placement.mark_failed(episode.engine, now)
        placement.end_request(episode.engine, _REQUEST_SIZE)
        self._clock.schedule(0.0 if placement.count_available(now) else _RETRY_S, self._sample_turn, episode)

    def deliver(self, episode: SimulatedEpisode) -> None:
        if not episode.alive:
            return
        rollout_request = episode.rollout_request
        episode.ended_s = self._clock.now
        arrival = TrajectoryArrival(
            rollout_request,
            episode.plan.reward,
            episode.plan.reward >= 1.0,
            EpisodeStatus.COMPLETED,
            rollout_request.attempt.to_bytes(8, "little"),
            _PAYLOAD,
            episode.plan.tokens,
        )
        (outcome,), closed = self._journal.append_batch([arrival])
        if outcome is AppendOutcome.APPENDED:
            self.arrived[rollout_request.trajectory_id] = episode
        self._scheduler.mark_arrived(rollout_request, self._clock.now)
        del episode.worker.episodes[episode]
        if closed:
            self.read_journal()
            self._on_groups_closed()
        self._request_work(episode.worker)

    # -- failures ------------------------------------------------------------------------------------------------

    def kill_node(self, node: int) -> int:
        """Remove a node's worker with all its episodes, and return their number."""
        worker = self.workers[node]
        episodes, worker.episodes = worker.episodes, {}
        worker.alive = False
        for episode in episodes:
            episode.alive = False
            self.lost_tokens += sum(span.tokens for _, span in episode.spans)
            if episode.request is not None:
                self._engines[episode.engine].cancel(episode.request)
                self.lost_tokens += episode.request.sampled
        return len(episodes)

    def repair_node(self, node: int) -> None:
        """Start a new worker on the node: the rollout requests of the old one are issued again."""
        worker, engines = self.workers[node], len(self._engines)
        worker.alive, worker.incarnation = True, worker.incarnation + 1
        worker.placement = LoadBalancer(engines, first=zlib.crc32(f"worker-{node}".encode()) % engines)
        for out in self._scheduler.requests.reclaim_from_worker(f"worker-{node}", except_incarnation=worker.name):
            self._lose_episode(out, InfraFailure.WORKER_DIED)
        self._request_work(worker)

    def _check_deadlines(self, _: None) -> None:
        for out in self._scheduler.requests.reclaim_overdue(self._clock.now):
            self._lose_episode(out, InfraFailure.DEADLINE)
        self.serve_waiting_workers()
        self._clock.schedule(_DEADLINE_CHECK_S, self._check_deadlines)

    def _lose_episode(self, out: AssignedRequest, failure: InfraFailure) -> None:
        if self._scheduler.handle_failure(out, failure, "", self._clock.now) is FailedRequestOutcome.ABANDONED:
            self._journal.abandon_sample(out.request.group, out.request.sample, failure.value)
            self.read_journal()
            self._on_groups_closed()
