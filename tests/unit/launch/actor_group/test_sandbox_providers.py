"""If these fail, a run asks other pool servers than it was told to, or hears of none in its workers alone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from actors.agents.registry import make_agent
from actors.environment.episode import EpisodeInputs
from actors.environment.messages import EpisodeOutcome
from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.workers.provider_spec import ProviderSpec
from launch.actor_group.specs import sandbox_providers as launch_sandboxes
from launch.actor_group.specs.sandbox_providers import callback_address, check_provider, make_provider_spec
from launch.config import RunConfig, load_recipe
from protocol.errors import UserError
from sandbox.http.auth import Access
from sandbox.pool.leases import LeaseLimits
from sandbox.providers.daytona import sdk
from sandbox.router.app import create_app
from sandbox.router.pool_servers import RoutedPoolServers
from tests.support.actors.environments import serve_environment
from tests.support.fakes.fake_judge import unreachable_url
from tests.support.fakes.fake_provider import FakeProvider
from tests.support.network.http_servers import pool_server, serving

SAYS = "agent.system_prompt=Use the shell."
POOL = ("sandbox.provider=pool", "warm_start.enabled=false")


def config(*overrides: str) -> RunConfig:
    return load_recipe("demo", [*POOL, *overrides])


def check(config: RunConfig, **environment: str) -> None:
    check_provider(config, make_agent(config.agent.make_spec()), environment)


def test_pool_servers_come_from_the_configuration_or_else_from_the_environment() -> None:
    environment = {"WORKER_URLS": "http://a:18081, http://b:18081/", "LONGSHORE_SANDBOX_TOKEN": "secret"}
    assert make_provider_spec(load_recipe("demo").sandbox, environment) is None
    expected = ProviderSpec("pool", ("http://a:18081", "http://b:18081"), "secret")
    assert make_provider_spec(config().sandbox, environment) == expected
    assert "secret" not in repr(expected)
    settings = make_provider_spec(config("sandbox.urls=http://c:1,http://d:2").sandbox, environment)
    assert settings == ProviderSpec("pool", ("http://c:1", "http://d:2"), "secret")


def test_a_run_without_a_pool_server_is_refused_with_how_to_name_one() -> None:
    with pytest.raises(UserError, match=r"--set sandbox\.urls=http://HOST:18081, or export WORKER_URLS="):
        check(config())
    with pytest.raises(UserError, match=r"server 'a:1' is not a URL"):
        check(config(), WORKER_URLS="a:1")


def test_a_server_that_does_not_answer_is_named() -> None:
    url = unreachable_url().removesuffix("/v1")
    with pytest.raises(UserError, match=rf"the pool server {url} does not answer .*longshore server"):
        check(config(f"sandbox.urls={url}"))


async def test_a_wrong_pool_server_token_is_refused_before_anything_starts() -> None:
    app = create_app(lambda: RoutedPoolServers(("http://127.0.0.1:9",), "", 1.0), Access("127.0.0.1", "right" * 4))
    async with serving(app) as url:
        run_config = config(f"sandbox.urls={url}")
        await asyncio.to_thread(check, run_config, LONGSHORE_SANDBOX_TOKEN="right" * 4)
        with pytest.raises(UserError, match="export LONGSHORE_SANDBOX_TOKEN"):
            await asyncio.to_thread(check, run_config, LONGSHORE_SANDBOX_TOKEN="wrong" * 4)


def test_an_agent_with_terminal_keystrokes_is_refused_in_pool_sandboxes() -> None:
    for kind, toolset in (("hermes", "seta"), ("bash", "shell_only"), ("code_interpreter", "shell_only")):
        with pytest.raises(UserError, match="needs the URLs of pool servers"):  # and not its tools
            check(config(f"agent.kind={kind}", f"agent.toolset={toolset}", SAYS))
    with pytest.raises(UserError, match=r"'keystrokes' calls terminal_keystrokes.*--set sandbox\.provider=docker"):
        check(config("agent.kind=keystrokes", SAYS), WORKER_URLS="http://a:1")


async def test_a_harness_that_a_pool_server_lacks_is_named_with_the_command_for_its_machine(
    tmp_path: Path,
) -> None:
    provider, chosen = FakeProvider(), ("agent.harness=pi", "agent.context_tokens=8192", "warm_start.enabled=false")
    async with pool_server(provider, tmp_path) as (url, _):
        router = create_app(lambda: RoutedPoolServers((url,), "", 1.0), Access("127.0.0.1"))
        async with serving(router) as both:
            for address in (url, both):
                with pytest.raises(UserError, match=rf"machine of the pool server {url}: run `longshore"):
                    await asyncio.to_thread(check, config(f"sandbox.urls={address}", *chosen))
            provider.can_listen = False
            with pytest.raises(UserError, match=rf"the pool server {url} cannot listen in its sandboxes.*as root"):
                await asyncio.to_thread(check, config(f"sandbox.urls={url}", *chosen))
            provider.can_listen, provider.programs = True, (PUBLISHED_HARNESSES["pi"].folder,)
            await asyncio.to_thread(check, config(f"sandbox.urls={url}", *chosen))


async def test_the_sandbox_slots_of_a_group_are_requested_from_one_address_with_enough_of_them(tmp_path: Path) -> None:
    limits = LeaseLimits(tasks=3, runs_per_task=2)
    async with AsyncExitStack() as stack:
        urls = [
            (await stack.enter_async_context(pool_server(FakeProvider(), tmp_path / name, limits)))[0] for name in "ab"
        ]
        router = create_app(lambda: RoutedPoolServers(tuple(urls), "", 1.0), Access("127.0.0.1"))
        both = await stack.enter_async_context(serving(router))
        together = "sandbox.group_slots=true"
        with pytest.raises(UserError, match=r"needs 8 slots at once, and http\S+ has 6: start its servers with more"):
            await asyncio.to_thread(check, config(f"sandbox.urls={urls[0]}", together))
        run_config = config(f"sandbox.urls={both}", together)
        await asyncio.to_thread(check, run_config)
        settings = make_provider_spec(run_config.sandbox, {})
        assert settings is not None
        assert settings.group_slots
        with pytest.raises(UserError, match=r"start a router \(longshore router --servers http:\S+,http:\S+\)"):
            check(config(together), WORKER_URLS=",".join(urls))


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["sandbox.group_slots=true", "sandbox.provider=docker"], "set sandbox.provider = 'pool'"),
        (["sandbox.group_slots=true", "sandbox.urls=http://c:1,http://d:2"], "or router"),
        (["sandbox.group_slots=true", "rollout.group_size=17"], "at most 16 slots at once"),
    ],
)
def test_group_slots_that_no_server_could_grant_are_refused(overrides: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        config(*overrides)


SERVICES = ("sandbox.provider=environment", "warm_start.enabled=false")


def test_environment_services_come_from_the_configuration_or_else_from_the_environment() -> None:
    environment = {
        "ENVIRONMENT_URLS": "http://a:18082",
        "WORKER_URLS": "http://b:1",
        "LONGSHORE_SANDBOX_TOKEN": "secret",
    }
    run_config = load_recipe("demo", [*SERVICES])
    assert make_provider_spec(run_config.sandbox, environment) == ProviderSpec(
        "environment", ("http://a:18082",), "secret"
    )
    with pytest.raises(UserError, match=r"--set sandbox\.urls=http://HOST:18082, or export ENVIRONMENT_URLS="):
        check(run_config)


def test_local_services_call_back_over_loopback_and_remote_ones_to_the_node_of_the_worker() -> None:
    assert callback_address(["http://127.0.0.1:1", "http://localhost:2"], "10.0.0.5") == "127.0.0.1"
    assert callback_address(["http://127.0.0.1:1", "http://far:2"], "10.0.0.5") == "10.0.0.5"


async def test_a_url_that_is_not_an_environment_service_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async def never(_: EpisodeInputs) -> EpisodeOutcome:
        raise AssertionError

    async with pool_server(FakeProvider(), tmp_path) as (url, _), serve_environment(never) as (service, _):
        with pytest.raises(UserError, match=r"is not an environment service: start one \(longshore environment\)"):
            await asyncio.to_thread(check, load_recipe("demo", [*SERVICES, f"sandbox.urls={url}"]))
        for agent in ((), ("agent.kind=keystrokes", SAYS)):  # whose terminals are there, too
            await asyncio.to_thread(check, load_recipe("demo", [*SERVICES, *agent, f"sandbox.urls={service}"]))
    with pytest.raises(UserError, match=r"the environment service \S+ does not answer"):
        await asyncio.to_thread(check, load_recipe("demo", [*SERVICES, f"sandbox.urls={service}"]))


def test_a_local_run_needs_a_callback_address_for_remote_services() -> None:
    for overrides, reachable in (
        ((), False),
        (("sandbox.callback=10.0.0.1",), True),
        (("cluster.address=head:6379",), True),
    ):
        config = load_recipe("demo", [*SERVICES, *overrides])
        if reachable:
            launch_sandboxes.check_callback(config, ["http://far:18082"])
        else:
            with pytest.raises(UserError, match=r"--set sandbox\.callback=ADDRESS"):
                launch_sandboxes.check_callback(config, ["http://far:18082"])
            launch_sandboxes.check_callback(config, ["http://127.0.0.1:18082"])


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["agent.history=individual"], "set agent.history = 'whole'"),
        (["agent.harness=x"], "nobody listens .*provider = 'environment': set .* 'docker', 'pool' or 'daytona'"),
        (["sandbox.options={a=1}"], "are for daytona and providers that packages add"),
        (["sandbox.image=a:1"], "sets them where it is started"),
        (["sandbox.provider=docker", "sandbox.callback=10.0.0.1"], "remove sandbox.callback"),
    ],
)
def test_settings_that_an_environment_service_would_ignore_are_refused(overrides: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        load_recipe("demo", [*SERVICES, *overrides])


def test_the_package_options_and_key_of_daytona_are_checked_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daytona = ("sandbox.provider=daytona", "warm_start.enabled=false")
    with pytest.raises(UserError, match="imgae is not an option of Daytona"):
        check(load_recipe("demo", [*daytona, "sandbox.options={imgae='x'}"]))
    run_config = load_recipe("demo", [*daytona, "sandbox.options={image='debian:12'}"])
    monkeypatch.setattr(sdk, "PACKAGE", "no_such_package_anywhere")
    with pytest.raises(UserError, match=r"pip install 'longshore\[daytona\]'"):
        check(run_config)
    monkeypatch.setattr(sdk, "PACKAGE", "json")  # any that is there
    with pytest.raises(UserError, match="export DAYTONA_API_KEY="):
        check(run_config)
    check(run_config, DAYTONA_API_KEY="k")


def test_a_harness_for_daytonas_sandboxes_must_be_installed_here_unless_other_nodes_have_the_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sdk, "PACKAGE", "json")  # any that is there
    overrides = ["sandbox.provider=daytona", "warm_start.enabled=false", "agent.harness=pi"]
    limits = ["agent.context_tokens=16384", "agent.max_new_tokens=1024", "learner.micro_batch_tokens=16384"]
    environment = {"DAYTONA_API_KEY": "k", "LONGSHORE_HOME": str(tmp_path)}
    with pytest.raises(UserError, match="run `longshore harness install pi`"):
        check(load_recipe("demo", [*overrides, *limits]), **environment)
    check(load_recipe("demo", [*overrides, *limits, "cluster.address=head:6379"]), **environment)
