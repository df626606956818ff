"""The root of longshore's errors.

A message says what happened, why, and the next command to run.  A room derives its own small classes from these.
"""

from __future__ import annotations


class LongshoreError(Exception):
    """Any error that longshore raises on purpose.  ``launch`` prints it as one line."""


class UserError(LongshoreError):
    """The person who started the command can mend this: exit code 2."""


class InfraError(LongshoreError):
    """Infrastructure failed: retry or replace; never a policy outcome."""
