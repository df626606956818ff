"""If these fail, a command runs twice, or a lost reply cannot be requested again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable

import pytest

from protocol.errors import InfraError
from sandbox.errors import SandboxLost, ShellBusy
from sandbox.http.messages import HttpError, HttpReply, OkReply
from sandbox.server.operation_record import KnownOperation
from sandbox.server.operations import MAX_REPLY_BYTES, IdempotentOperations, RequestedOperation

OPENCLAWS_TRIES = 3


class FakeClient:
    """Disconnects on request."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def wait_until_gone(self) -> None:
        await self.gone.wait()


class FakeRecord:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.full = self.is_long = False
        self.rewritten: dict[str, int] = {}
        """``replies``: statuses of the known replies by key."""

    def begin(self, key: str, digest: str) -> None:
        if self.full:
            raise InfraError("no space")
        self.lines.append(("begin", key))

    def end(self, key: str, reply: HttpReply) -> None:
        self.lines.append(("end", key))

    def delivered(self, key: str) -> None:
        self.lines.append(("delivered", key))

    def rewrite(self, known: Iterable[KnownOperation]) -> None:
        self.rewritten = {each.key: each.reply.status if each.reply else 0 for each in known}


class CountingOperations:
    """Operations that count, and wait while ``hold`` is not set."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.record, self.at = FakeRecord(), 0.0
        self.spawned: list[asyncio.Task[None]] = []
        self.operations = IdempotentOperations(self._spawn, self.record, 300.0, lambda: self.at)
        self.group, self.times = group, 0
        self.hold = asyncio.Event()
        self.hold.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self.spawned.append(self.group.create_task(work))

    async def do(self) -> HttpReply:
        self.times += 1
        mine = self.times
        await self.hold.wait()
        return HttpReply(200, f"{mine}".encode())

    async def ask(
        self, request_id: str = "", digest: str = "d", client: FakeClient | None = None,
        do: Callable[[], Awaitable[HttpReply]] | None = None, what: str = "exec_tool",
    ) -> HttpReply:  # fmt: skip
        operation = RequestedOperation(what, digest, request_id, client or FakeClient())
        return await self.operations.run_once(operation, do or self.do)

    def start(self, *args, **kwargs) -> asyncio.Task[HttpReply]:
        return self.group.create_task(self.ask(*args, **kwargs))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_request_id_is_done_once_and_answered_again():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        assert (await counting.ask("r")).body == (await counting.ask("r")).body == b"1"
        assert (await counting.ask("other")).body == b"2"


async def test_a_repeated_request_joins_the_running_operation():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.hold.clear()
        first, second = counting.start("r"), counting.start("r")
        await turns()
        counting.hold.set()
        assert (await first).body == (await second).body == b"1"
        assert counting.times == 1


async def test_a_request_id_cannot_stand_for_two_requests():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        await counting.ask("r", "one")
        with pytest.raises(HttpError, match="another request"):
            await counting.ask("r", "two")


async def test_without_an_id_equal_requests_are_two_requests():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        assert [(await counting.ask()).body, (await counting.ask()).body] == [b"1", b"2"]


async def test_a_blind_retry_joins_the_operation_that_its_client_abandoned():
    """OpenClaw's client sends exec_tool three times: the command runs once."""
    async with asyncio.TaskGroup() as group:
        counting, client = CountingOperations(group), FakeClient()
        counting.hold.clear()
        first = counting.start(client=client)
        await turns()
        client.gone.set()
        await turns()
        retry = counting.start()
        await turns()
        counting.hold.set()
        assert (await first).body == (await retry).body == b"1"
        assert (await counting.ask()).body == b"2"  # once taken up, it stands for nothing more


async def test_a_blind_retry_after_the_end_gets_the_undelivered_reply():
    async with asyncio.TaskGroup() as group:
        counting, client = CountingOperations(group), FakeClient()
        counting.hold.clear()
        first = counting.start(client=client)
        await turns()
        client.gone.set()
        await turns()
        counting.hold.set()
        await first
        assert (await counting.ask(digest="another")).body == b"2"
        assert (await counting.ask()).body == b"1"
        assert counting.times == 2


async def test_a_blind_retry_joins_before_its_first_client_is_known_to_be_gone():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.hold.clear()
        first = counting.start()
        await turns()
        retry, other = counting.start(), counting.start(digest="another")
        await turns()
        counting.hold.set()
        assert [(await each).body for each in (first, retry, other)] == [b"1", b"1", b"2"]


async def test_a_client_that_leaves_as_the_operation_ends_has_not_received_the_reply():
    async with asyncio.TaskGroup() as group:
        counting, client = CountingOperations(group), FakeClient()

        async def last() -> HttpReply:
            client.gone.set()
            return await counting.do()

        await counting.ask(client=client, do=last)
        assert [(await counting.ask()).body, (await counting.ask()).body] == [b"1", b"2"]


async def test_a_reply_delivered_to_one_of_several_waiting_clients_counts_as_delivered():
    """Otherwise a command that is deliberately repeated gets an old answer."""
    async with asyncio.TaskGroup() as group:
        counting, client = CountingOperations(group), FakeClient()
        counting.hold.clear()
        both = [counting.start(client=client), counting.start()]
        await turns()
        client.gone.set()
        await turns()
        counting.hold.set()
        assert [(await each).body for each in both] == [b"1", b"1"]
        assert (await counting.ask()).body == b"2"


async def test_a_request_id_cannot_pass_for_a_request_without_one():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        assert [(await counting.ask("#1")).body, (await counting.ask()).body, (await counting.ask("#1")).body] == [
            b"1", b"2", b"1",
        ]  # fmt: skip


async def test_replies_beyond_the_memory_limit_are_dropped_without_repeating_operations():
    async def much() -> HttpReply:
        counting.times += 1
        return HttpReply(200, b"x" * (MAX_REPLY_BYTES // 3))

    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        for number in range(100):
            await counting.ask(str(number), do=much)
        replies = [await counting.ask(str(number), do=much) for number in range(100)]
        kept = [reply for reply in replies if reply.status == 200]
        assert sum(len(reply.body) for reply in kept) <= MAX_REPLY_BYTES
        assert replies[-1] in kept
        assert (replies[0].status, replies[0].value()["code"]) == (409, "OUTCOME_UNKNOWN")
        assert counting.times == 100


async def test_a_long_journal_is_rewritten_with_the_operations_still_known():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        await counting.ask("old")
        counting.at = 301.0
        await counting.ask()
        counting.record.is_long = True
        await counting.ask("new")
        assert counting.record.rewritten == {"exec_tool/new": 200}


async def test_a_disconnected_client_does_not_end_its_operation():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.hold.clear()
        waiting = counting.start("r")
        await turns()
        waiting.cancel()
        await turns()
        counting.hold.set()
        assert (await counting.ask("r")).body == b"1"


async def test_a_stopping_server_answers_waiting_clients():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.hold.clear()
        waiting = counting.start("r")
        await turns()
        counting.spawned[0].cancel()
        assert (await waiting).value()["code"] == "DRAINING"


async def test_operations_of_one_lease_run_one_after_the_other():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.hold.clear()
        both = [counting.start("a"), counting.start("b")]
        await turns()
        assert counting.times == 1
        counting.hold.set()
        assert sorted([(await each).body for each in both]) == [b"1", b"2"]


async def test_failures_are_recorded_and_returned_again():
    async def lost() -> HttpReply:
        counting.times += 1
        raise SandboxLost("gone")

    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        first, again = await counting.ask("r", do=lost), await counting.ask("r", do=lost)
        assert first.status == again.status == 410
        assert first.value()["code"] == "SANDBOX_LOST"
        assert counting.times == 1


async def test_an_operation_that_cannot_be_recorded_is_not_run():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.record.full = True
        assert (await counting.ask("r")).status == 503
        assert counting.times == 0


async def test_an_operation_started_by_a_killed_server_is_not_repeated():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.operations.restore(KnownOperation("exec_tool/begun", "d", None))
        counting.operations.restore(KnownOperation("exec_tool/ended", "d", HttpReply(200, OkReply())))
        counting.operations.restore(KnownOperation("exec_tool#7", "blind", None))
        for _ in range(OPENCLAWS_TRIES):
            assert (await counting.ask(digest="blind")).value()["code"] == "OUTCOME_UNKNOWN"
        unknown = await counting.ask("begun")
        assert (unknown.status, unknown.value()["code"]) == (409, "OUTCOME_UNKNOWN")
        assert (await counting.ask("ended")).value() == {"ok": True}
        assert counting.times == 0


@pytest.mark.parametrize("error", [TimeoutError(), SandboxLost("no answer"), KeyError()], ids=repr)
async def test_an_operation_that_failed_after_its_start_is_not_repeated_by_blind_retries(error: Exception):
    """This holds until its client deliberately sends it again much later."""
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)

        async def fail() -> HttpReply:
            counting.times += 1
            raise error

        first, *again = [await counting.ask(do=fail) for _ in range(OPENCLAWS_TRIES)]
        assert first.status >= 400
        assert {each.body for each in again} == {first.body}
        assert counting.times == 1
        counting.at = 301.0
        assert (await counting.ask()).body == b"2"


@pytest.mark.parametrize(
    "error", [ShellBusy(), HttpError(504, "NOT_BEGUN", "its turn did not come"), ValueError("no NUL")], ids=repr
)
async def test_an_operation_refused_before_its_start_is_repeated_by_a_blind_retry(error: Exception):
    async def refuse() -> HttpReply:
        raise error

    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        assert (await counting.ask(do=refuse)).status >= 400
        counting.record.full = True
        assert (await counting.ask()).status == 503
        counting.record.full = False
        assert (await counting.ask()).body == b"1"


async def test_a_blind_reset_is_repeated_and_clears_earlier_blind_operations():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        counting.operations.restore(KnownOperation("exec_tool#1", "d", None))
        counting.operations.restore(KnownOperation("exec_tool/r", "d", None))
        counting.operations.restore(KnownOperation("reset#2", "d", None))
        assert [(await counting.ask(what="reset")).status for _ in range(2)] == [409, 200]
        assert (await counting.ask()).body == b"2"
        assert (await counting.ask("r")).status == 409


async def test_replies_are_forgotten_after_their_time():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        await counting.ask("r")
        counting.at = 301.0
        assert (await counting.ask("r")).body == b"2"


async def test_the_start_is_recorded_before_an_operation_and_the_reply_after():
    async with asyncio.TaskGroup() as group:
        counting = CountingOperations(group)
        await counting.ask("r")
        await counting.ask()
        assert counting.record.lines == [
            ("begin", "exec_tool/r"), ("end", "exec_tool/r"),
            ("begin", "exec_tool#2"), ("end", "exec_tool#2"), ("delivered", "exec_tool#2"),
        ]  # fmt: skip
