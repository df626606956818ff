"""The root of longshore's errors.

A message says what happened, why, and the next command to run.  Each package derives its own small classes from these.
"""

from __future__ import annotations

from collections.abc import Iterator


class LongshoreError(Exception):
    """Base of all errors that longshore raises on purpose.  A command prints them as one line."""


class UserError(LongshoreError):
    """An error that the user can fix: exit code 2."""


class InfraError(LongshoreError):
    """A failure of infrastructure: retry or replace; never a policy outcome."""


def iterate_leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of nested groups; a single error is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  the group's type argument is lost in isinstance
            yield from iterate_leaf_errors(member)  # pyright: ignore[reportUnknownArgumentType]  as above
    else:
        yield error
