"""Ray's failures as longshore's errors: the one place that knows Ray's exception classes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import ray
from ray import exceptions as ray_errors

from protocol.errors import InfraError

_DEATH_DETAILS = ("class_name:", "actor_id:", "pid:", "name:", "namespace:", "ip:")
"""Beginnings of lines in Ray's message about a dead actor that the caller does not need."""
_EXIT = re.compile(
    r"Worker exit type: (?P<type>\w+) Worker exit detail: (?P<detail>.*?)\.?( Some common causes include: .*)?$",
    re.DOTALL,
)


class RemoteError(InfraError):
    """A call to an actor did not finish, or its result could not be brought back."""

    def __init__(self, actor: str, why: str) -> None:
        super().__init__(actor, why)
        self.actor, self.why = actor, why

    def __str__(self) -> str:
        return f"actor {self.actor}: {self.why}"


class ActorDied(RemoteError):
    """The actor's process is gone; the call may or may not have taken effect."""


class ActorUnavailable(RemoteError):
    """The actor is temporarily unreachable, for example while it restarts; the call may have taken effect."""


async def wait_for_result(actor: str, object_ref: ray.ObjectRef[Any]) -> Any:
    """Return the value of ``object_ref``, which ``actor`` computes.

    Raises the method's exception, with Ray's remote traceback as the cause, or a :class:`RemoteError`.  If the caller
    is cancelled, the coroutine in the actor is cancelled too.
    """
    try:
        return await object_ref
    except asyncio.CancelledError:
        ray.cancel(object_ref, recursive=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in Ray
        raise
    except ray_errors.TaskCancelledError as error:
        raise RemoteError(actor, "the call was cancelled by someone else") from error
    except ray_errors.ActorUnavailableError as error:
        raise ActorUnavailable(actor, _first_line(error)) from error
    except ray_errors.ActorDiedError as error:
        raise ActorDied(actor, _cause_of_death(error)) from error
    except ray_errors.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise RemoteError(actor, _first_line(error)) from error
    except ray_errors.RayError as error:
        raise RemoteError(actor, _first_line(error)) from error


def _cause_of_death(error: ray_errors.ActorDiedError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if error.actor_init_failed:
        return f"its constructor raised {lines[-1]}"
    message = " ".join(line for line in lines if not line.startswith(_DEATH_DETAILS))
    found = _EXIT.search(message)
    return f"its process ended: {found['detail']} ({found['type']})" if found else message


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
