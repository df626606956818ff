"""Retries with growing delays."""

import asyncio


class GaveUp(Exception):
    """Every try failed; the last failure is the cause."""


def delays(tries, first_s=0.1, factor=2.0, longest_s=10.0):
    """Return the seconds to wait before each try but the first one."""
    return [min(first_s * factor**number, longest_s) for number in range(tries - 1)]


async def with_retries(work, tries=3, sleep=asyncio.sleep, first_s=0.1, retry_on=(OSError, TimeoutError)):
    """Return the result of ``work()``, which is tried again after failures of ``retry_on``; others are raised at once.

    Raises GaveUp after the last try.
    """
    waits = [*delays(tries, first_s), None]
    for wait_s in waits:
        try:
            return await work()
        except retry_on as error:
            if wait_s is None:
                raise GaveUp(f"failed {tries} times") from error
            await sleep(wait_s)
    raise ValueError(f"{tries} tries are none")
