"""The root of longshore's errors.

A message says what happened, why, and the next command to run.  A room derives its own small classes from these.
"""

from __future__ import annotations

from collections.abc import Iterator


class LongshoreError(Exception):
    """Any error that longshore raises on purpose.  ``launch`` prints it as one line."""


class UserError(LongshoreError):
    """The person who started the command can mend this: exit code 2."""


class InfraError(LongshoreError):
    """Infrastructure failed: retry or replace; never a policy outcome."""


def iterate_leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of groups; a single error is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  the group's type argument is lost in isinstance
            yield from iterate_leaf_errors(member)  # pyright: ignore[reportUnknownArgumentType]  as above
    else:
        yield error
