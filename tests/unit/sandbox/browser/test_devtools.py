"""If these fail, an answer of Chromium reaches nobody, or the wrong caller, or its end is waited for in vain."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import msgspec
import pytest

from sandbox.browser.devtools import DevTools, DevToolsCallError, DevToolsEvent, DevToolsTimeoutError, MessageSplitter
from sandbox.errors import SandboxVanished


class FakeWaiter:
    async def wait_for_event(self, event: asyncio.Event, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            await event.wait()


@dataclass
class FakeChromium:
    """Answers each call with the next of its messages, in which ``ID`` stands for the call's id."""

    answers: list[str]
    calls: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    events: list[DevToolsEvent] = field(default_factory=list[DevToolsEvent])
    devtools: DevTools = field(init=False)

    def __post_init__(self) -> None:
        self.devtools = DevTools(FakeWaiter(), self.events.append)

    def type_soon(self, data: bytes) -> None:
        self.calls.append(json.loads(data.rstrip(b"\0")))
        answer = self.answers.pop(0).replace("ID", str(self.calls[-1]["id"]))
        asyncio.get_running_loop().call_soon(self.devtools.feed, answer.encode())

    async def begin(self) -> DevTools:
        self.devtools.feed(b"stty: noise\0")
        await self.devtools.begin(self, 5.0)
        return self.devtools


class Version(msgspec.Struct):
    product: str


async def test_an_answer_is_typed_and_an_event_is_passed_on() -> None:
    chromium = FakeChromium(
        ['{"method":"Page.x","sessionId":"S","params":{"product":"y"}}\0{"id":ID,"result":{"product":"Chrome"}}\0']
    )
    devtools = await chromium.begin()
    assert await devtools.call(Version, "Browser.getVersion", "S", a=1) == Version("Chrome")
    assert chromium.calls == [{"id": 1, "method": "Browser.getVersion", "params": {"a": 1}, "sessionId": "S"}]
    (event,) = chromium.events
    assert (event.method, event.session, event.read(Version)) == ("Page.x", "S", Version("y"))


async def test_a_refusal_is_raised_in_chromiums_words() -> None:
    devtools = await FakeChromium(['{"id":ID,"error":{"code":-1,"message":"No node"}}\0']).begin()
    with pytest.raises(DevToolsCallError, match="No node"):
        await devtools.call(Version, "DOM.x")


async def test_a_call_without_an_answer_ends_at_its_time_and_its_late_answer_is_dropped() -> None:
    devtools = await FakeChromium(
        ['{"id":7,"result":{}}\0', '{"id":1,"result":{}}\0{"id":ID,"result":{"product":"x"}}\0']
    ).begin()
    with pytest.raises(DevToolsTimeoutError, match="A was not answered"):
        await devtools.call(Version, "A", "", 0.01)
    assert await devtools.call(Version, "B") == Version("x")


async def test_the_end_of_chromium_wakes_its_callers_and_refuses_later_ones() -> None:
    devtools = await FakeChromium([""]).begin()
    with pytest.raises(SandboxVanished, match="ended by itself"):
        await devtools.call(Version, "A")
    with pytest.raises(SandboxVanished):
        await devtools.call(Version, "A")


async def test_an_end_before_the_beginning_is_no_beginning() -> None:
    chromium = FakeChromium([])
    chromium.devtools.feed(b"")
    with pytest.raises(SandboxVanished):
        await chromium.devtools.begin(chromium, 5.0)


async def test_half_a_character_of_a_page_is_a_question_mark_and_a_whole_one_stays() -> None:
    event = '{"method":"x","params":{"product":"\\uDFFF"}}\0'
    answer = '{"id":ID,"result":{"product":"a \\ud800 b \\ud83d\\ude00 \\\\ud800"}}\0'
    chromium = FakeChromium([event + answer])
    devtools = await chromium.begin()
    assert await devtools.call(Version, "A") == Version("a ? b 😀 \\ud800")
    assert chromium.events[0].read(Version) == Version("?")


@pytest.mark.parametrize("bad", ['{"id":', "no JSON", "[1]", '{"method":"x","params":' + "[" * 5000 + "]" * 5000 + "}"])
async def test_a_message_that_cannot_be_read_does_not_end_the_stream(bad: str) -> None:
    devtools = await FakeChromium([f'{bad}\0{{"id":ID,"result":{{"product":"x"}}}}\0']).begin()
    assert await devtools.call(Version, "A") == Version("x")


async def test_an_event_that_cannot_be_read_does_not_end_the_stream() -> None:
    def read(event: DevToolsEvent) -> None:
        event.read(Version)

    chromium = FakeChromium(['{"method":"x","params":{"product":1}}\0{"id":ID,"result":{"product":"x"}}\0'])
    chromium.devtools = DevTools(FakeWaiter(), read)
    assert await (await chromium.begin()).call(Version, "A") == Version("x")


async def test_another_answer_than_expected_is_a_refused_call() -> None:
    devtools = await FakeChromium(['{"id":ID,"result":{"product":null}}\0']).begin()
    with pytest.raises(DevToolsCallError, match="unexpected answer: Expected `str`, got `null`"):
        await devtools.call(Version, "A")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_messages_are_cut_at_nul_however_they_come(size: int) -> None:
    splitter, stream = MessageSplitter(), b"one\0\0three\0fo"
    found = [each for at in range(0, len(stream), size) for each in splitter.feed(stream[at : at + size])]
    assert found == [b"one", b"", b"three"]
    assert splitter.feed(b"ur\0") == [b"four"]


def test_a_message_that_is_too_long_is_dropped_and_the_next_is_read() -> None:
    splitter = MessageSplitter(most_bytes=4)
    assert splitter.feed(b"12345") == splitter.feed(b"6") == []
    assert splitter.feed(b"7\0" + b"1234\0") == [b"1234"]
