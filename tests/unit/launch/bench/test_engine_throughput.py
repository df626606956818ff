"""If these fail, the simulator's engines are as fast as a load that was not there."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from actors.engines.messages import GenerateReply, GenerateRequest, PauseMode, WeightLoadReport
from launch.bench.engine_throughput import EngineArguments, EngineBenchmarkOptions, measure_loads, parse_options
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion


class MeteredEngine:
    """Ends its replies after ``at_most`` tokens, counts how many requests it has at once, and stands still for
    ``stall_ms``."""

    def __init__(self, at_most: int, stall_ms: float = 1.0) -> None:
        self.at_most, self.stall_ms, self.running = at_most, stall_ms, 0
        self.loaded: list[tuple[int, int]] = []
        """Versions, and how many requests it had."""
        self.loads: list[int] = []
        self.sampled: Counter[int] = Counter()
        """Tokens by what the prompt begins with."""

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        self.running += 1
        await asyncio.sleep(0)
        self.loads.append(self.running)
        await asyncio.sleep(0)
        self.running -= 1
        count = min(self.at_most, request.max_new_tokens)
        self.sampled[request.input_ids[0]] += count
        return GenerateReply(
            token_ids=[5] * count,
            logprobs=[0.0] * count,
            versions=[WeightVersion(0)] * count,
            finish="stop",
            key_version=WeightVersion(0),
            mixed_prefix=False,
            server_switches=0,
            cached_tokens=0,
            ms=1.0,
            engine="engine-0",
        )

    async def load_weights(self, manifest: WeightManifest, deadline_s: float) -> WeightLoadReport:
        await asyncio.sleep(0)
        self.loaded.append((manifest.version, self.running))
        return WeightLoadReport(version=manifest.version, pause_ms=self.stall_ms, load_ms=0.0, prefetch_ms=0.0)


def version(number: int) -> WeightManifest:
    return WeightManifest(WeightVersion(number), number, NO_VERSION, "/model", "", 0, 0)


async def test_a_load_stays_constant_until_each_of_its_requests_has_all_its_tokens() -> None:
    fake, lines = MeteredEngine(at_most=4), list[str]()
    report = await measure_loads(
        {"in_place": fake}, EngineBenchmarkOptions((1, 3), 10, 2, "cpu"), version, lines.append
    )
    assert fake.sampled == {0: 2 * 3 * 10, 1: 2 * 2 * 10, 2: 2 * 2 * 10}
    assert fake.loads == 2 * [*[1] * 3, *[3] * 9, *[3] * 9]
    loads = report.pauses["in_place"].loads
    assert [load.requests for load in loads] == [1, 3]
    assert all(load.tokens_per_s > 0 for load in loads)
    assert len(lines) == 4


async def test_both_pause_modes_are_measured_with_new_weights_under_the_largest_load() -> None:
    """Without this, it is unknown which of them suits a machine."""
    fakes: dict[PauseMode, MeteredEngine] = {"in_place": MeteredEngine(10, 4.0), "retract": MeteredEngine(10, 6.0)}
    report = await measure_loads(fakes, EngineBenchmarkOptions((2,), 10, 2, "cpu"), version, list[str]().append)
    for fake in fakes.values():
        assert [number for number, _ in fake.loaded] == [*range(1, 11)]
        assert 2 in {busy for _, busy in fake.loaded}
    output = report.as_json()
    assert output["loads"] == output["pause"]["in_place"]["loads"]
    assert [output["pause"][pause]["stall_ms_p50"] for pause in fakes] == [4.0, 6.0]
    assert len(output["retract_vs_in_place"]["tokens_per_s"]) == 1


def engine_arguments(*words: str) -> EngineArguments:
    return parse_arguments(EngineArguments, words, "bench")


def test_loads_are_read_from_the_command_line() -> None:
    assert parse_options(engine_arguments()) == EngineBenchmarkOptions((1, 16, 32, 64), 300, 3, "cpu")
    assert parse_options(
        engine_arguments("--requests", "2,8", "--tokens", "5", "--rounds", "1")
    ) == EngineBenchmarkOptions((2, 8), 5, 1, "cpu")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--requests", "1,x"), "argument --requests: must be a valid integer"),
        (("--requests", "0"), "1 request or more"),
        (("--tokens", "5000"), "argument --tokens: must be at most 1004"),
        (("--rounds", "0"), "argument --rounds: must be at least 1"),
    ],
)
def test_options_that_cannot_be_measured_are_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_options(engine_arguments(*words))
