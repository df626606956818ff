"""All published harnesses, by name."""

from __future__ import annotations

from collections.abc import Mapping

from actors.harnesses.npm_harnesses import NPM_HARNESSES
from actors.harnesses.published_harness import PublishedHarness
from actors.harnesses.pypi_harnesses import PYPI_HARNESSES
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

PUBLISHED_HARNESSES: Mapping[str, PublishedHarness] = {each.name: each for each in (*NPM_HARNESSES, *PYPI_HARNESSES)}


def find_harness(name: str) -> PublishedHarness:
    """Return a published harness.  Raises UserError for an unknown name."""
    if (found := PUBLISHED_HARNESSES.get(name)) is None:
        raise UserError(
            f"there is no published harness '{name}'{did_you_mean(name, PUBLISHED_HARNESSES)}: they are "
            f"{', '.join(PUBLISHED_HARNESSES)}"
        )
    return found


def require_temperature(harness: PublishedHarness, temperature: float) -> None:
    """Raise UserError if the policy, which samples at ``temperature``, would refuse the harness's requests."""
    if harness.temperature not in {None, temperature}:
        raise UserError(
            f"{harness.title} asks for temperature {harness.temperature:g} in each request, and the policy would "
            f"refuse them all at {temperature:g}: sample at {harness.temperature:g} (agent.temperature; --temperature "
            "of an evaluation, without --greedy)"
        )
