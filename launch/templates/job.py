"""The job that every template renders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.run.arguments import parse_cluster_arguments
from protocol.errors import UserError

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""Valid label in Kubernetes, with room for a suffix."""
_FILLED = ("--address", "--nodes", "--run-id", "--resume", "--dry-run", "--proof", "--json")
"""Options of ``longshore cluster`` that a template writes itself or that make no sense in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    name: str
    words: tuple[str, ...]
    """Arguments of ``longshore cluster`` without those that a template fills in."""

    def command(self, *, runs: str, run: str, nodes: int) -> str:
        """Return the command for the head node (:mod:`launch.templates.entrypoint`); ``run`` is quoted for a shell."""
        start = f"python -m launch.templates.entrypoint {shlex.quote(runs)} {run} {nodes} --"
        return f"{start} {shlex.join(self.words)}".rstrip()


def make_job(name: str, words: Sequence[str]) -> ClusterJob:
    """Return the job that runs ``launch.cluster`` with ``words``.

    Raises UserError for an invalid name or words, or words without a recipe, and whatever
    :meth:`~launch.run.arguments.ClusterArguments.load_config` raises.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"--name {name}: use at most 40 lower-case letters, digits and '-', with a letter first, for example "
            "--name longshore"
        )
    given = [word for word in words if word.partition("=")[0] in _FILLED]
    if given:
        raise UserError(f"{given[0]} is filled in by the template: leave it out after the --")
    arguments = parse_cluster_arguments(words)
    if (
        not arguments.recipe_name.endswith(".toml") or Path(arguments.recipe_name).exists()
    ):  # otherwise it exists only where the job runs
        arguments.load_config()
    return ClusterJob(name=name, words=tuple(words))
