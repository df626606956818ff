"""Uses the servers beside a run at a steady rate, each through its own client: sandboxes through the router, episodes
of the environment service, pages and events of the monitor.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from actors.agents.prompt import PromptTemplate
from actors.agents.settings import AgentSettings, AgentSpec, ToolsetKind
from actors.environment.client import EnvironmentClient
from actors.environment.messages import AGENT_ADAPTER, EpisodeLimits, PolicyAddress, StartEpisodeRequest
from actors.rollout.settings import EpisodeSettings
from launch.bench.coin_tasks import coin_task
from protocol.errors import InfraError
from protocol.processes.task_groups import task_group
from sandbox.http.json_client import TRANSPORT_ERRORS
from sandbox.http.task_codec import encode_task
from sandbox.providers.interface import open_sandbox
from sandbox.providers.remote import RemotePool
from sandbox.tasks.task import Task

SESSION_S, EPISODE_S, PAGE_S = 10.0, 10.0, 1.0
"""Seconds between the beginnings of two sessions of the router, episodes of the service, pages of the monitor."""
_STREAM_S = 30.0
"""Seconds after which a reader of the monitor's events leaves and comes back."""
_COMMAND_S, _WAIT_S, _DEADLINE_S = 30.0, 120.0, 300.0
_PAGES = (
    *("/", "/api/runs", "/api/runs/-/head", "/api/runs/-/state", "/api/runs/-/metrics", "/api/runs/-/steps?limit=50"),
    *("/api/runs/-/trajectories?limit=100", "/api/runs/-/groups?sort=spread&limit=200"),
    *("/api/runs/-/trajectories?step=last&sort=worst&limit=500", "/api/runs/-/activity?slots=600"),
)
_SERVER_ERROR = 500
_TASKS = 8
"""Number of different tasks, in turn."""
_COMMAND = '{"name": "shell_exec", "arguments": {"id": "a", "command": "echo 1 > note.txt"}}'


@dataclass(slots=True)
class SteadyUse:
    """Counts what was done, and what failed."""

    counts: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    """The first failed uses, one line each."""
    _MOST_FAILURES = 20

    async def use_sandboxes(self, url: str) -> None:
        """Open, use, grade and close a sandbox again and again, until cancelled."""
        async with RemotePool(url, acquire_s=_WAIT_S) as pool:

            async def use(number: int) -> None:
                async with open_sandbox(pool, _task(number), _DEADLINE_S) as sandbox:
                    await sandbox.write_files({"/app/a": b"1" * 1000})
                    await sandbox.run("cat /app/a > /app/note.txt; seq 1000", _COMMAND_S)
                    await sandbox.read_file("/app/note.txt")
                    await sandbox.grade()

            await self._repeat("sandbox sessions", SESSION_S, use)

    async def use_environment(self, url: str) -> None:
        """Run an episode of an environment service again and again, until cancelled."""
        async with EnvironmentClient((url,), acquire_s=_WAIT_S) as client, _serve_model() as model:

            async def use(number: int) -> None:
                await client.run_episode(_episode(number, model))

            await self._repeat("environment episodes", EPISODE_S, use)

    async def use_monitor(self, url: str) -> None:
        """Read pages in turn, and follow the events with a reader that leaves and comes back, until cancelled."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_WAIT_S)) as session,
            task_group() as group,
        ):

            async def read(number: int) -> None:
                async with session.get(url + _PAGES[number % len(_PAGES)]) as answer:
                    await answer.read()
                    if answer.status >= _SERVER_ERROR:
                        raise InfraError(f"{answer.url} answers {answer.status}")

            async def follow(_: int) -> None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_STREAM_S), session.get(f"{url}/api/runs/-/events") as answer:
                        while await answer.content.readany():
                            continue

            group.create_task(self._repeat("monitor pages", PAGE_S, read))
            group.create_task(self._repeat("event readers", _STREAM_S, follow))

    async def _repeat(self, what: str, every_s: float, use: Callable[[int], Awaitable[None]]) -> None:
        """Begin ``use`` every ``every_s`` seconds, or later where it takes longer."""
        clock = asyncio.get_running_loop().time
        for number in itertools.count():
            due = clock() + every_s
            try:
                await use(number)
                self.counts[what] += 1
            except (InfraError, *TRANSPORT_ERRORS) as error:
                self.counts[f"failed {what}"] += 1
                if len(self.failures) < self._MOST_FAILURES:
                    self.failures.append(f"{what}: {type(error).__name__}: {error}")
            await asyncio.sleep(max(0.0, due - clock()))


def services_of(
    use: SteadyUse, *, router: str, environment: str, monitor: str
) -> list[Coroutine[object, object, None]]:
    """Return what has to run, for the addresses of the servers."""
    return [use.use_sandboxes(router), use.use_environment(environment), use.use_monitor(monitor)]


def _task(number: int) -> Task:
    return coin_task(f"soak-{number % _TASKS}", "Write a number to note.txt.", "echo 1 > note.txt\n")


def _episode(number: int, model: str) -> StartEpisodeRequest:
    limits = EpisodeLimits(
        settings=EpisodeSettings(max_turns=2, max_malformed=2, max_new_tokens=100, context_tokens=4000),
        temperature=1.0,
        reply_s=_COMMAND_S,
        acquire_s=_WAIT_S,
        command_s=_COMMAND_S,
        grade_s=_WAIT_S,
        cleanup_s=_COMMAND_S,
    )
    agent = AgentSpec(AgentSettings(toolset=ToolsetKind.SHELL_ONLY), PromptTemplate("Use the shell."))
    return StartEpisodeRequest(
        episode=f"soak-{number}",
        task=encode_task(_task(number)),
        agent=AGENT_ADAPTER.dump_python(agent, mode="json"),
        limits=limits,
        model=PolicyAddress(url=model, name="policy"),
        deadline_s=_DEADLINE_S,
    )


@asynccontextmanager
async def _serve_model() -> AsyncGenerator[str]:
    """Serve a policy that calls a tool and then is done, and yield its address."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _complete_chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()


async def _complete_chat(request: web.Request) -> web.Response:
    body = await request.json()
    first = not any(message["role"] == "assistant" for message in body["messages"])
    text = f"<tool_call>\n{_COMMAND}\n</tool_call>" if first else "done"
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return web.json_response({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})
