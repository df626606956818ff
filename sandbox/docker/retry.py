"""Calls of the Docker daemon's API, with retries when the daemon is busy or drops the connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, cast

import aiodocker
import aiohttp

from protocol.errors import InfraError

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]
CALL_TIMEOUT_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
BUSY_STATUSES = frozenset({500, 502, 503})
"""Statuses of a call that the daemon could not do now."""
RETRIED_STATUSES = BUSY_STATUSES | {409}
"""And of a call that conflicted with another one."""
_ATTEMPTS = 5
_CONNECTION_CUT = 900
"""aiodocker's status for a connection that could not be made or was dropped."""


class DockerEngineError(InfraError):
    """The Docker daemon refused, failed or could not be reached.  ``status`` is its HTTP status, 0 for no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def read_refusal(body: str) -> str:
    """Return the sentence in the daemon's answer to what it refuses; the whole answer if it has none."""
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        return body.strip()
    message = cast("dict[str, object]", answer).get("message") if isinstance(answer, dict) else None
    return message.strip() if isinstance(message, str) else body.strip()


async def call_with_retries(
    what: str,
    call: Callable[[], Awaitable[T]],
    statuses: frozenset[int],
    *,
    idempotent: bool = True,
    within_s: float = CALL_TIMEOUT_S,
) -> T:
    """Call, and retry on these HTTP statuses and, if the call is idempotent, on a dropped connection.

    ``within_s`` limits each attempt; beyond a minute the client's own limit must be lifted too.  Raises
    DockerEngineError, whose message begins with "could not ``what``".
    """
    for attempt in range(_ATTEMPTS):
        try:
            async with asyncio.timeout(within_s):
                return await call()
        except (aiodocker.DockerError, DockerEngineError) as error:
            cut = error.status == _CONNECTION_CUT
            retry = idempotent if cut else error.status in statuses
            if not retry or attempt == _ATTEMPTS - 1:
                if cut:
                    raise no_answer_error(what, error) from error
                raise DockerEngineError(f"could not {what}: {error}", error.status) from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not idempotent or attempt == _ATTEMPTS - 1:
                raise no_answer_error(what, error) from error
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            raise no_answer_error(what, error) from error
        await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")


def no_answer_error(what: str, error: Exception) -> DockerEngineError:
    """Return the error of a call that the daemon did not answer; ``what`` completes "could not …"."""
    return DockerEngineError(f"could not {what}: the Docker daemon gave no answer ({type(error).__name__} {error})")
