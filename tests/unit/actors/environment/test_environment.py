"""If these fail, an episode on another machine is run twice, goes on for nobody, or what went wrong with it is blamed
on the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from actors.agents.hermes import HERMES
from actors.engines.messages import EngineUnavailable
from actors.environment.client import EnvironmentClient, EnvironmentLostError
from actors.environment.episode import EpisodeInputs
from actors.environment.messages import AGENT_ADAPTER, EpisodeOutcome, StartEpisodeRequest
from actors.environment.service import EnvironmentService, EnvironmentServiceSettings
from actors.rollout.settings import EpisodeSettings
from actors.rollout.stages import NO_DEADLINES, StageOverrun
from actors.workers.environment_runner import EnvironmentRunner
from actors.workers.provider_spec import ProviderSpec
from protocol.errors import InfraError, UserError
from protocol.trajectory import EpisodeStatus
from sandbox.errors import BuildError, SandboxLost, SandboxStartError, SandboxVanished, TaskFault
from sandbox.http.auth import Access
from sandbox.http.json_client import HttpStatusError, JsonHttpClient
from sandbox.http.messages import HttpError
from sandbox.pool.leases import SlotsExhausted
from sandbox.providers.settings import ENVIRONMENT
from tests.support.actors.environments import (
    OUTCOME,
    SETTINGS,
    TASK,
    make_start_request,
    run_in_fake_terminal,
    serve_environment,
)
from tests.support.actors.episodes import episode_context
from tests.support.actors.observers import FakeObserver, FakeReward
from tests.support.actors.worker_specs import worker_spec
from tests.support.fakes.fake_judge import unreachable_url
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine, ids_of
from tests.support.network.breakable_forwarder import BreakableForwarder


@dataclass
class Played:
    """Episodes that end when they are told to."""

    begun: list[str] = field(default_factory=list[str])
    ended: list[str] = field(default_factory=list[str])
    go: asyncio.Event = field(default_factory=asyncio.Event)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    fail: Exception | None = None

    async def __call__(self, part: EpisodeInputs) -> EpisodeOutcome:
        self.begun.append(part.begin.episode)
        self.came.set()
        try:
            await self.go.wait()
        finally:
            self.ended.append(part.begin.episode)
        if self.fail is not None:
            raise self.fail
        return OUTCOME


@asynccontextmanager
async def services(*urls: str, **settings: float) -> AsyncGenerator[EnvironmentClient]:
    async with EnvironmentClient(urls, **{"acquire_s": 30.0, "unreachable_s": 0.5, **settings}) as opened:
        yield opened


async def test_a_repeated_begin_joins_its_episode_and_a_different_one_under_the_name_is_refused() -> None:
    played = Played()
    async with EnvironmentService(EnvironmentServiceSettings(), played) as service:
        assert [service.begin(make_start_request(), "d"), service.begin(make_start_request(), "d")] == [False, True]
        with pytest.raises(HttpError, match="belongs to another episode"):
            service.begin(make_start_request(), "other")
        played.go.set()
        first, again = await service.wait_outcome("e1", 30.0), await service.wait_outcome("e1", 0.0)
        assert first is again is not None
        assert first.status == 200
    assert played.begun == ["e1"]


async def test_slots_are_limited_and_freed_when_their_episodes_end() -> None:
    played = Played()
    async with EnvironmentService(EnvironmentServiceSettings(slots=2), played) as service:
        for name in ("a", "b"):
            service.begin(make_start_request(name), name)
        with pytest.raises(SlotsExhausted, match="all 2 slots are taken"):
            service.begin(make_start_request("c"), "c")
        assert service.cancel("a")
        played.go.set()
        await service.wait_outcome("b", 30.0)
        assert not service.begin(make_start_request("c"), "c")


async def test_an_abandoned_episode_is_ended_and_an_outcome_is_kept_for_a_limited_time() -> None:
    """Otherwise episodes of a dead run would hold their sandboxes for as long as an episode may take."""
    played, at = Played(), [0.0]
    async with EnvironmentService(
        EnvironmentServiceSettings(ttl_s=60.0, remember_s=300.0), played, lambda: at[0]
    ) as service:
        for name in ("asked for", "left"):
            service.begin(make_start_request(name), name)
        await played.came.wait()
        at[0] = 59.0
        assert await service.wait_outcome("asked for", 0.0) is None
        at[0] = 60.0
        service.reap_episodes()
        await asyncio.sleep(0)
        assert (played.ended, service.running, service.abandoned) == (["left"], 1, 1)
        played.go.set()
        await service.wait_outcome("asked for", 30.0)
        at[0] += 299.0
        service.reap_episodes()
        assert await service.wait_outcome("asked for", 0.0) is not None
        at[0] += 300.0
        service.reap_episodes()
        with pytest.raises(HttpError, match="no episode asked for"):
            await service.wait_outcome("asked for", 0.0)


async def test_an_episode_with_a_waiting_client_is_never_abandoned() -> None:
    played, at = Played(), [0.0]
    async with (
        EnvironmentService(EnvironmentServiceSettings(ttl_s=60.0), played, lambda: at[0]) as service,
        asyncio.TaskGroup() as group,
    ):
        service.begin(make_start_request(), "d")
        waiting = group.create_task(service.wait_outcome("e1", 600.0))
        await played.came.wait()
        at[0] = 1000.0
        service.reap_episodes()
        played.go.set()
        assert (await waiting) is not None


async def test_a_stopped_service_ends_its_episodes_and_notifies_waiting_clients() -> None:
    played = Played()
    async with serve_environment(played) as (url, service), services(url) as opened, asyncio.TaskGroup() as group:
        messages: list[str] = []

        async def wait() -> None:
            with pytest.raises(EnvironmentLostError, match="stopped under this episode"):
                await opened.run_episode(make_start_request())
            messages.append("lost")

        group.create_task(wait())
        await played.came.wait()
        await service.drain(0.0)
        with pytest.raises(HttpError, match="being stopped"):
            service.begin(make_start_request("late"), "d")
    assert (played.ended, messages) == (["e1"], ["lost"])


async def test_an_invalid_start_request_is_refused() -> None:
    async with serve_environment(Played()) as (url, _), JsonHttpClient(url) as caller:
        body = make_start_request().model_dump(mode="json")
        for wrong, message in (
            ({"task": {"id": "/"}}, "not a valid task"),
            ({"agent": {}}, "the agent cannot be read"),
            ({"limits": body["limits"] | {"max_turns": 0}}, "max_turns"),
            ({"model": {"url": "file:///etc/passwd", "name": "x"}}, "url"),
            ({"deadline_s": 1e9}, "deadline_s"),
        ):
            with pytest.raises(HttpStatusError, match=message):
                await caller.post("/begin", {**body, **wrong})


async def test_requests_without_the_right_token_are_refused() -> None:
    access = Access("127.0.0.1", "right" * 4)
    async with serve_environment(Played(), access=access) as (url, _):
        async with JsonHttpClient(url, "wrong" * 4) as caller:
            with pytest.raises(HttpStatusError, match="bearer token"):
                await caller.post("/begin", make_start_request().model_dump(mode="json"))
        async with JsonHttpClient(url, "right" * 4) as caller:
            assert not (await caller.post("/begin", make_start_request().model_dump(mode="json")))["reused"]


@pytest.mark.parametrize(
    "error",
    [
        SandboxStartError("no sandbox"),
        TaskFault("its setup fails"),
        BuildError("its build fails"),
        SandboxLost("the daemon is gone"),
        SandboxVanished("nothing says why"),
        EngineUnavailable("the policy does not answer"),
        StageOverrun("the agent's stage was not over"),
        UserError("no such agent"),
        InfraError("another"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_remote_error_has_the_same_type_at_the_client(error: Exception) -> None:
    played = Played(fail=error)
    played.go.set()
    async with serve_environment(played) as (url, _), services(url) as opened:
        with pytest.raises(type(error), match=str(error)) as caught:
            await opened.run_episode(make_start_request())
    assert type(caught.value) is type(error)


async def test_a_bug_in_the_service_is_an_infrastructure_failure() -> None:
    played = Played(fail=ZeroDivisionError())
    played.go.set()
    async with serve_environment(played) as (url, _), services(url) as opened:
        with pytest.raises(EnvironmentLostError, match="the server has a defect"):
            await opened.run_episode(make_start_request())


async def test_the_service_ends_an_episode_at_its_deadline() -> None:
    played = Played()
    async with serve_environment(played) as (url, _), services(url) as opened:
        with pytest.raises(StageOverrun):
            await opened.run_episode(make_start_request().model_copy(update={"deadline_s": 0.05}))
    assert played.ended == ["e1"]


async def test_a_cancelled_client_ends_its_episode_on_the_service() -> None:
    played = Played()
    async with serve_environment(played) as (url, service), services(url) as opened:
        async with asyncio.TaskGroup() as group:
            playing = group.create_task(opened.run_episode(make_start_request()))
            await played.came.wait()
            playing.cancel()
        assert (played.ended, service.running) == (["e1"], 0)


async def test_full_and_unreachable_services_are_skipped() -> None:
    full, free = Played(), Played()
    free.go.set()
    async with (
        serve_environment(full, EnvironmentServiceSettings(slots=1)) as (one, service),
        serve_environment(free) as (other, _),
        services(one, other, unreachable_url().removesuffix("/v1")) as opened,
    ):
        service.begin(make_start_request("holds"), "d")
        for number in range(4):
            await opened.run_episode(
                make_start_request(f"e{number}").model_copy(
                    update={"task": make_start_request().task | {"id": f"t{number}"}}
                )
            )
    assert free.begun == ["e0", "e1", "e2", "e3"]


async def test_a_sandbox_start_fails_if_no_service_accepts_it_in_time() -> None:
    async with services(unreachable_url().removesuffix("/v1"), acquire_s=0.1) as opened:
        with pytest.raises(SandboxStartError, match=r"no environment service accepted it within 0\.1 s: http"):
            await opened.run_episode(make_start_request())


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_service_that_dies_during_an_episode_is_an_infrastructure_failure(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether nobody answers any more, or another that knows nothing of it."""
    monkeypatch.setattr("actors.environment.client.WAIT_S", 0.0)
    played, messages = Played(), list[str]()

    async def play(opened: EnvironmentClient) -> None:
        with pytest.raises(EnvironmentLostError) as caught:
            await opened.run_episode(make_start_request())
        messages.append(str(caught.value))

    async with (
        serve_environment(played) as (url, service),
        BreakableForwarder(url) as network,
        services(network.url, unreachable_s=0.1) as opened,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(play(opened))
        await network.replied.wait()
        if restarted:
            service.cancel("e1")
        else:
            network.cut()
    assert ("there is no episode e1" if restarted else network.url) in messages[0]


@pytest.mark.parametrize("forgets", [False, True])
async def test_an_episode_is_never_run_twice_after_a_lost_start_reply(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.environment.client.ROUND_S", 0.0)
    played = Played()
    played.go.set()
    async with (
        serve_environment(played) as (url, service),
        BreakableForwarder(url, lose=2, on_loss=lambda: forgets and service.cancel("e1")) as network,
        services(network.url) as opened,
    ):
        if forgets:
            with pytest.raises(EnvironmentLostError, match="a second time"):
                await opened.run_episode(make_start_request(), untouched=lambda: False)
        else:
            assert (
                await opened.run_episode(make_start_request(), untouched=lambda: False)
            ).status is EpisodeStatus.COMPLETED
            assert played.begun == ["e1"]


EPISODE = EpisodeSettings(
    max_turns=4,
    max_malformed=2,
    max_new_tokens=100,
    context_tokens=4000,
    temperature=0.7,
    nominal_tokens_per_s=50.0,
    time_limit_s=60.0,
)


def called(command: str) -> str:
    return f'<tool_call>{{"name": "shell_exec", "arguments": {{"command": "{command}"}}}}</tool_call>\x01'


@asynccontextmanager
async def environments(url: str, engine: ScriptedEngine) -> AsyncGenerator[EnvironmentRunner]:
    provider = ProviderSpec(ENVIRONMENT, (url,))
    spec = worker_spec(agent=SETTINGS, acquire_timeout_s=30.0)
    async with EnvironmentRunner(spec, provider, FakeTokenizer(), engine.generate, HERMES) as opened:
        yield opened


async def test_the_trajectory_has_the_sampled_tokens_and_the_reward_of_the_remote_grade() -> None:
    """Token by token, in one segment: nothing that crosses the network is tokenised again."""
    texts = [called("ls -l"), called("cat x"), "done\x01"]
    engine, rewarding, observer = ScriptedEngine([*texts]), FakeReward(), FakeObserver()
    async with serve_environment(run_in_fake_terminal) as (url, _), environments(url, engine) as opened:
        trajectory = await opened.run_episode(episode_context(EPISODE, TASK, reward=rewarding, observer=observer))
        assert opened.statistics().started == 1
    (segment,) = trajectory.segments
    assert segment.token_ids[segment.loss_mask == 1].tolist() == ids_of("".join(texts))
    assert sorted(set(segment.versions[segment.loss_mask == 1].tolist())) == [1, 2, 3]
    assert (trajectory.status, [test.passed for test in trajectory.tests]) == (EpisodeStatus.COMPLETED, [True, False])
    (played,) = rewarding.received_results
    assert [call.output for turn in played.turns for call in turn.calls] == ["out", "out"]
    assert (played.score, played.sampled_tokens) == (0.5, len(ids_of("".join(texts))))
    assert trajectory.timings_ms["acquire"] == 3.0
    assert len(observer.texts) == 3, "what the policy says is seen while it says it"


async def test_an_engine_failure_in_a_remote_episode_is_not_a_policy_outcome() -> None:
    engine = ScriptedEngine([called("ls"), *[EngineUnavailable("gone")] * 20])
    async with serve_environment(run_in_fake_terminal) as (url, _), environments(url, engine) as opened:
        with pytest.raises(EngineUnavailable):
            await opened.run_episode(episode_context(EPISODE, TASK))


async def test_an_episode_without_time_left_is_not_started() -> None:
    played = Played()
    async with serve_environment(played) as (url, _), environments(url, ScriptedEngine([])) as opened:
        deadlines = replace(NO_DEADLINES, evaluate=asyncio.get_running_loop().time() + 5.0)
        with pytest.raises(StageOverrun, match="no time is left"):
            await opened.run_episode(episode_context(EPISODE, TASK, deadlines=deadlines))
    assert played.begun == []


def test_agent_settings_survive_the_request_unchanged() -> None:
    received = AGENT_ADAPTER.validate_python(
        StartEpisodeRequest.model_validate(make_start_request().model_dump(mode="json")).agent
    )
    assert received == SETTINGS
