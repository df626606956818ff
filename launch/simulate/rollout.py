"""Simulated workers around the real conductor, router and journal: episodes begin, sample, use tools, arrive, and die
with their node."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors.dispatch import Dispatch, Fate, Standing
from actors.engines.placement import Placement
from actors.progress import read_progress
from actors.tickets import Out, name_of
from launch.simulate.clock import Clock
from launch.simulate.engines import Engine, Request, Span
from launch.simulate.workload import EpisodePlan, Workload
from protocol.journal import AppendOutcome, Arrival, Journal
from protocol.trajectory import InfraFailure, Status, Ticket, trajectory_id

_PATROL_S = 60.0
_RETRY_S = 0.2
_SIZE = 1
"""Of a request, to its router: prompts are not simulated, so that all count alike."""
_PAYLOAD = b"\0"
"""The simulated buffer has room for everything, and so nothing depends on a trajectory's bytes."""


@dataclass(slots=True, eq=False)
class Episode:
    """The owner of its own requests."""

    rollout: Rollout
    ticket: Ticket
    plan: EpisodePlan
    worker: Worker
    begun_s: float
    session: str
    turn: int = 0
    request: Request | None = None
    engine: int = -1
    spans: list[tuple[int, Span]] = field(default_factory=list[tuple[int, Span]])
    """(turn, what was sampled)."""
    ended_s: float = 0.0
    alive: bool = True

    def sampled(self, request: Request) -> None:
        self.rollout.sampled(self, request)

    def refused(self, request: Request) -> None:
        self.rollout.refused(self, request)


@dataclass(slots=True, eq=False)
class Worker:
    node: int
    places: int
    placement: Placement
    incarnation: int = 0
    alive: bool = True
    waiting: bool = False
    episodes: dict[Episode, None] = field(default_factory=dict[Episode, None])

    @property
    def name(self) -> str:
        return f"worker-{self.node}#{self.incarnation}"

    @property
    def free(self) -> int:
        return self.places - len(self.episodes) if self.alive else 0


class Rollout:
    """``news`` is called when groups have closed, for the learner."""

    def __init__(
        self,
        clock: Clock,
        *,
        dispatch: Dispatch,
        journal: Journal,
        engines: Sequence[Engine],
        workload: Workload,
        places: Sequence[int],
        news: Callable[[], None],
    ) -> None:
        self._clock, self._dispatch, self._journal, self._engines = clock, dispatch, journal, engines
        self._workload, self._news = workload, news
        self.workers = [
            Worker(node, count, Placement(len(engines), first=zlib.crc32(f"worker-{node}".encode()) % len(engines)))
            for node, count in enumerate(places)
        ]
        self._waiting: deque[Worker] = deque()
        self.arrived: dict[str, Episode] = {}
        """By trajectory, until the learner or a drop takes it."""
        self.lost_tokens = 0
        """Sampled by episodes and requests that died."""
        self._seen = 0

    def begin(self) -> None:
        for worker in self.workers:
            self._ask(worker)
        self._clock.after(_PATROL_S, self._patrol)

    def stand(self, standing: Standing) -> None:
        self._dispatch.stand(standing)
        self.wake()

    def follow(self) -> None:
        """Tell the conductor what the journal says, as its own loop does."""
        progress = read_progress(self._journal, self._seen)
        self._seen = progress.seq
        self._dispatch.news(progress, self._clock.now)
        for closing in progress.closed:
            if closing.outcome.drop_reason is not None:
                for sample in closing.rewards:
                    self.arrived.pop(trajectory_id(closing.group, sample), None)
        self.wake()

    def wake(self) -> None:
        """Give tickets to waiting workers, first come first served."""
        while self._waiting:
            worker = self._waiting[0]
            if worker.free > 0 and not self._take(worker):
                return
            if worker.free <= 0:
                self._waiting.popleft()
                worker.waiting = False

    @property
    def in_flight(self) -> int:
        return sum(len(worker.episodes) for worker in self.workers)

    # -- a worker ------------------------------------------------------------------------------------------------

    def _ask(self, worker: Worker) -> None:
        if worker.free > 0 and not worker.waiting:
            worker.waiting = True
            self._waiting.append(worker)
        self.wake()

    def _take(self, worker: Worker) -> bool:
        """Up to its free places; false when there is no ticket."""
        dispatch, now = self._dispatch, self._clock.now
        while (plan := dispatch.plan(worker.free)) is not None:
            self._journal.open_group(plan, dispatch.cursor.state())
            dispatch.opened(plan, now)
        tickets = dispatch.hand_out(worker.name, worker.free, now)
        for ticket in tickets:
            session = name_of(ticket)
            episode = Episode(self, ticket, self._workload.episode(ticket), worker, now, session)
            worker.episodes[episode] = None
            self._go_on(episode, episode.plan.acquire_s)
        return bool(tickets)

    # -- an episode ----------------------------------------------------------------------------------------------

    def _sample(self, episode: Episode) -> None:
        if not episode.alive:
            return
        turn = episode.plan.turns[episode.turn]
        episode.engine = episode.worker.placement.begin(episode.session, _SIZE, self._clock.now)
        episode.request = Request(episode, turn.tokens, turn.generate_s)
        self._engines[episode.engine].submit(episode.request)

    def _go_on(self, episode: Episode, wait_s: float) -> None:
        """To its next turn, or to its end: of one whose first prompt had no room for a reply that is all there is."""
        if episode.turn < len(episode.plan.turns):
            self._clock.after(wait_s, self._sample, episode)
        else:
            self._clock.after(wait_s + episode.plan.grade_s, self._arrive, episode)

    def sampled(self, episode: Episode, request: Request) -> None:
        """A turn is whole: the tool is next, or the grader."""
        episode.worker.placement.end(episode.engine, _SIZE)
        episode.request = None
        for span in request.spans:
            episode.spans.append((episode.turn, span))
        wait_s = episode.plan.turns[episode.turn].tool_s
        episode.turn += 1
        self._go_on(episode, wait_s)

    def refused(self, episode: Episode, request: Request) -> None:
        """Its engine died: the router sends the turn elsewhere."""
        if not episode.alive:
            return
        placement, now = episode.worker.placement, self._clock.now
        self.lost_tokens += request.sampled
        episode.request = None
        placement.failed(episode.engine, now)
        placement.end(episode.engine, _SIZE)
        self._clock.after(0.0 if placement.at_hand(now) else _RETRY_S, self._sample, episode)

    def _arrive(self, episode: Episode) -> None:
        if not episode.alive:
            return
        ticket = episode.ticket
        episode.ended_s = self._clock.now
        arrival = Arrival(
            ticket.trajectory_id,
            ticket.group,
            ticket.sample,
            episode.plan.reward,
            episode.plan.reward >= 1.0,
            Status.COMPLETED,
            ticket.attempt.to_bytes(8, "little"),
            _PAYLOAD,
            episode.plan.tokens,
        )
        (outcome,), closed = self._journal.append([arrival])
        if outcome is AppendOutcome.APPENDED:
            self.arrived[ticket.trajectory_id] = episode
        self._dispatch.arrived(ticket, self._clock.now)
        del episode.worker.episodes[episode]
        if closed:
            self.follow()
            self._news()
        self._ask(episode.worker)

    # -- what dies -----------------------------------------------------------------------------------------------

    def node_died(self, node: int) -> int:
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

    def node_repaired(self, node: int) -> None:
        """A new worker says hello: the tickets of the old one are issued again."""
        worker, engines = self.workers[node], len(self._engines)
        worker.alive, worker.incarnation = True, worker.incarnation + 1
        worker.placement = Placement(engines, first=zlib.crc32(f"worker-{node}".encode()) % engines)
        for out in self._dispatch.tickets.lost_with(f"worker-{node}", except_incarnation=worker.name):
            self._lost(out, InfraFailure.WORKER_DIED)
        self._ask(worker)

    def _patrol(self, _: None) -> None:
        for out in self._dispatch.tickets.overdue(self._clock.now):
            self._lost(out, InfraFailure.DEADLINE)
        self.wake()
        self._clock.after(_PATROL_S, self._patrol)

    def _lost(self, out: Out, failure: InfraFailure) -> None:
        if self._dispatch.lost(out, failure, "", self._clock.now) is Fate.ABANDONED:
            self._journal.abandon(out.ticket.group, out.ticket.sample, failure.value)
            self.follow()
            self._news()
