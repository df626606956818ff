"""An environment service without sandboxes, on a real socket: what it plays is a test's to say."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from actors.agents.prompt import PromptTemplate
from actors.agents.settings import AgentSettings, AgentSpec, ToolsetKind
from actors.environment.app import create_app
from actors.environment.episode import EpisodeInputs, ToolEventObserver, open_chat_policy
from actors.environment.messages import AGENT_ADAPTER, EpisodeLimits, EpisodeOutcome, PolicyAddress, StartEpisodeRequest
from actors.environment.service import EnvironmentService, EnvironmentServiceSettings, RunHostedEpisode
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.chat_policy import ChatEndpoint, ChatEndpointSettings
from actors.rollout.grading import run_and_grade
from actors.rollout.settings import EpisodeSettings
from actors.rollout.stages import NO_DEADLINES
from actors.rollout.terminal import EpisodeGrade
from protocol.trajectory import EpisodeStatus, TestResult
from sandbox.http.auth import Access
from sandbox.http.task_codec import encode_task
from sandbox.tasks.task import Task
from tests.support.fakes.fake_terminal import FakeTerminal
from tests.support.network.http_servers import LOOPBACK, serving

TASK = Task(id="t", instruction="list", expected_tests=("a", "b"))
SETTINGS = AgentSpec(AgentSettings(toolset=ToolsetKind.SHELL_ONLY), PromptTemplate("Use the shell."))
LIMITS = EpisodeLimits(
    settings=EpisodeSettings(max_turns=4, max_malformed=2, max_new_tokens=100, context_tokens=4000),
    temperature=0.7,
    reply_s=30.0,
    acquire_s=30.0,
    command_s=5.0,
    grade_s=5.0,
    cleanup_s=5.0,
)
OUTCOME = EpisodeOutcome(
    EpisodeStatus.COMPLETED, EpisodeGrade((TestResult("a", True),), 1.0, True, 1.0), "", (), (), {}
)


def make_start_request(name: str = "e1", url: str = "http://127.0.0.1:9", key: str = "") -> StartEpisodeRequest:
    return StartEpisodeRequest(
        episode=name,
        task=encode_task(TASK),
        agent=AGENT_ADAPTER.dump_python(SETTINGS, mode="json"),
        limits=LIMITS,
        model=PolicyAddress(url=url, key=key, name="policy"),
        deadline_s=60.0,
    )


async def run_in_fake_terminal(part: EpisodeInputs) -> EpisodeOutcome:
    """:func:`actors.environment.episode.run_hosted_episode` without a sandbox."""
    limits, begin = part.begin.limits, part.begin
    model = ChatEndpointSettings(url=begin.model.url, model=begin.model.name, key=begin.model.key, deadline_s=5.0)
    terminal, notes = FakeTerminal(), ToolEventObserver()
    async with ChatEndpoint(model) as endpoint:
        open_policy = partial(open_chat_policy, part, endpoint)
        acting = AgentLoop(part.agent, open_policy, terminal, limits.settings, notes)
        ended = await run_and_grade(
            acting.play, terminal, part.task, lambda: acting.transcript.last_content, NO_DEADLINES
        )
    turns, shown = tuple(acting.transcript.turns), tuple(notes.events)
    return EpisodeOutcome(ended.status, ended.grade, ended.error, turns, shown, {"acquire": 3.0, "tool": 1.0})


@asynccontextmanager
async def serve_environment(
    play: RunHostedEpisode,
    settings: EnvironmentServiceSettings | None = None,
    access: Access = LOOPBACK,
    now: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[tuple[str, EnvironmentService]]:
    """Yield the service's address and the service itself."""
    services: list[EnvironmentService] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[EnvironmentService]:
        async with EnvironmentService(settings or EnvironmentServiceSettings(), play, now) as service:
            services.append(service)
            yield service

    async with serving(create_app(opened, access)) as url:
        yield url, services[0]
