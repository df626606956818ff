"""Simulated workers around the real conductor, router and journal: episodes begin, sample, use tools, arrive, and die
with their node."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors.buffer.group_progress import read_group_progress
from actors.engines.routing.load_balancer import LoadBalancer
from actors.scheduler.core import SchedulerCore
from actors.scheduler.request_queue import AssignedRequest
from actors.scheduler.settings import FailedRequestFate, SchedulerRunState
from launch.simulate.episode_workload import EpisodePlan, EpisodeWorkload
from launch.simulate.simulated_engines import SampledSpan, SimulatedEngine, SimulatedRequest
from launch.simulate.virtual_clock import VirtualClock
from protocol.journal import AppendOutcome, Journal, TrajectoryArrival
from protocol.trajectory import EpisodeStatus, InfraFailure, RolloutRequest, make_trajectory_id

_PATROL_S = 60.0
_RETRY_S = 0.2
_SIZE = 1
"""Of a request, to its router: prompts are not simulated, so that all count alike."""
_PAYLOAD = b"\0"
"""The simulated buffer has room for everything, and so nothing depends on a trajectory's bytes."""


@dataclass(slots=True, eq=False)
class SimulatedEpisode:
    """The owner of its own requests."""

    rollout: SimulatedRollout
    ticket: RolloutRequest
    plan: EpisodePlan
    worker: SimulatedWorker
    begun_s: float
    session: str
    turn: int = 0
    request: SimulatedRequest | None = None
    engine: int = -1
    spans: list[tuple[int, SampledSpan]] = field(default_factory=list[tuple[int, SampledSpan]])
    """(turn, what was sampled)."""
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
    """``news`` is called when groups have closed, for the learner."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        dispatch: SchedulerCore,
        journal: Journal,
        engines: Sequence[SimulatedEngine],
        workload: EpisodeWorkload,
        places: Sequence[int],
        news: Callable[[], None],
    ) -> None:
        self._clock, self._dispatch, self._journal, self._engines = clock, dispatch, journal, engines
        self._workload, self._news = workload, news
        self.workers = [
            SimulatedWorker(
                node, count, LoadBalancer(len(engines), first=zlib.crc32(f"worker-{node}".encode()) % len(engines))
            )
            for node, count in enumerate(places)
        ]
        self._waiting: deque[SimulatedWorker] = deque()
        self.arrived: dict[str, SimulatedEpisode] = {}
        """By trajectory, until the learner or a drop takes it."""
        self.lost_tokens = 0
        """Sampled by episodes and requests that died."""
        self._seen = 0

    def start(self) -> None:
        for worker in self.workers:
            self._request_work(worker)
        self._clock.schedule(_PATROL_S, self._check_deadlines)

    def set_run_state(self, standing: SchedulerRunState) -> None:
        self._dispatch.set_run_state(standing)
        self.serve_waiting_workers()

    def read_journal(self) -> None:
        """Tell the conductor what the journal says, as its own loop does."""
        progress = read_group_progress(self._journal, self._seen)
        self._seen = progress.seq
        self._dispatch.apply_progress(progress, self._clock.now)
        for closing in progress.closed:
            if closing.outcome.drop_reason is not None:
                for sample in closing.rewards:
                    self.arrived.pop(make_trajectory_id(closing.group, sample), None)
        self.serve_waiting_workers()

    def serve_waiting_workers(self) -> None:
        """Give tickets to waiting workers, first come first served."""
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
        """Up to its free places; false when there is no ticket."""
        dispatch, now = self._dispatch, self._clock.now
        while (plan := dispatch.plan_group(worker.free)) is not None:
            self._journal.open_group(plan, dispatch.groups.task_sampler.state())
            dispatch.mark_opened(plan, now)
        tickets = dispatch.assign_requests(worker.name, worker.free, now)
        for ticket in tickets:
            session = ticket.attempt_id
            episode = SimulatedEpisode(self, ticket, self._workload.plan_episode(ticket), worker, now, session)
            worker.episodes[episode] = None
            self._continue(episode, episode.plan.acquire_s)
        return bool(tickets)

    # -- an episode ----------------------------------------------------------------------------------------------

    def _sample_turn(self, episode: SimulatedEpisode) -> None:
        if not episode.alive:
            return
        turn = episode.plan.turns[episode.turn]
        episode.engine = episode.worker.placement.begin_request(episode.session, _SIZE, self._clock.now)
        episode.request = SimulatedRequest(episode, turn.tokens, turn.generate_s)
        self._engines[episode.engine].submit(episode.request)

    def _continue(self, episode: SimulatedEpisode, wait_s: float) -> None:
        """To its next turn, or to its end: of one whose first prompt had no room for a reply that is all there is."""
        if episode.turn < len(episode.plan.turns):
            self._clock.schedule(wait_s, self._sample_turn, episode)
        else:
            self._clock.schedule(wait_s + episode.plan.grade_s, self._deliver, episode)

    def turn_sampled(self, episode: SimulatedEpisode, request: SimulatedRequest) -> None:
        """A turn is whole: the tool is next, or the grader."""
        episode.worker.placement.end_request(episode.engine, _SIZE)
        episode.request = None
        for span in request.spans:
            episode.spans.append((episode.turn, span))
        wait_s = episode.plan.turns[episode.turn].tool_s
        episode.turn += 1
        self._continue(episode, wait_s)

    def turn_refused(self, episode: SimulatedEpisode, request: SimulatedRequest) -> None:
        """Its engine died: the router sends the turn elsewhere."""
        if not episode.alive:
            return
        placement, now = episode.worker.placement, self._clock.now
        self.lost_tokens += request.sampled
        episode.request = None
        placement.mark_failed(episode.engine, now)
        placement.end_request(episode.engine, _SIZE)
        self._clock.schedule(0.0 if placement.count_available(now) else _RETRY_S, self._sample_turn, episode)

    def _deliver(self, episode: SimulatedEpisode) -> None:
        if not episode.alive:
            return
        ticket = episode.ticket
        episode.ended_s = self._clock.now
        arrival = TrajectoryArrival(
            ticket.trajectory_id,
            ticket.group,
            ticket.sample,
            episode.plan.reward,
            episode.plan.reward >= 1.0,
            EpisodeStatus.COMPLETED,
            ticket.attempt.to_bytes(8, "little"),
            _PAYLOAD,
            episode.plan.tokens,
        )
        (outcome,), closed = self._journal.append_batch([arrival])
        if outcome is AppendOutcome.APPENDED:
            self.arrived[ticket.trajectory_id] = episode
        self._dispatch.mark_arrived(ticket, self._clock.now)
        del episode.worker.episodes[episode]
        if closed:
            self.read_journal()
            self._news()
        self._request_work(episode.worker)

    # -- what dies -----------------------------------------------------------------------------------------------

    def kill_node(self, node: int) -> int:
        """Its worker is gone with all its episodes; how many there were."""
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
        """A new worker says hello: the tickets of the old one are issued again."""
        worker, engines = self.workers[node], len(self._engines)
        worker.alive, worker.incarnation = True, worker.incarnation + 1
        worker.placement = LoadBalancer(engines, first=zlib.crc32(f"worker-{node}".encode()) % engines)
        for out in self._dispatch.requests.reclaim_from_worker(f"worker-{node}", except_incarnation=worker.name):
            self._lose_episode(out, InfraFailure.WORKER_DIED)
        self._request_work(worker)

    def _check_deadlines(self, _: None) -> None:
        for out in self._dispatch.requests.reclaim_overdue(self._clock.now):
            self._lose_episode(out, InfraFailure.DEADLINE)
        self.serve_waiting_workers()
        self._clock.schedule(_PATROL_S, self._check_deadlines)

    def _lose_episode(self, out: AssignedRequest, failure: InfraFailure) -> None:
        if self._dispatch.handle_failure(out, failure, "", self._clock.now) is FailedRequestFate.ABANDONED:
            self._journal.abandon_sample(out.request.group, out.request.sample, failure.value)
            self.read_journal()
            self._news()
