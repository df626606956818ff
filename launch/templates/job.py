"""What every template is made of."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.run.arguments import parse_cluster_arguments
from protocol.errors import UserError

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""What Kubernetes takes for a label, with room behind it."""
_FILLED = ("--address", "--nodes", "--run-id", "--resume", "--dry-run", "--proof", "--json")
"""Options of ``launch.cluster`` that a template writes itself, or that make no sense in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    name: str
    words: tuple[str, ...]
    """For ``python -m launch.cluster``, but for what a template fills in."""

    def command(self, *, runs: str, run: str, nodes: int) -> str:
        """Return what is started on the head's node (:mod:`launch.templates.entrypoint`).

        ``run`` is as a shell is to read it.
        """
        start = f"python -m launch.templates.entrypoint {shlex.quote(runs)} {run} {nodes} --"
        return f"{start} {shlex.join(self.words)}".rstrip()


def make_job(name: str, words: Sequence[str]) -> ClusterJob:
    """Return the job that runs ``launch.cluster`` with ``words``.

    Raises UserError for what cannot be a job's name, for words without a recipe or that ``launch.cluster`` does not
    take, and what :meth:`~launch.run.arguments.ClusterArguments.load_config` raises.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"--name {name}: use at most 40 lower-case letters, digits and '-', with a letter first, for example "
            "--name longshore"
        )
    given = [word for word in words if word.partition("=")[0] in _FILLED]
    if given:
        raise UserError(f"{given[0]} is filled in by the template: leave it out behind the --")
    told = parse_cluster_arguments(words)
    if told.is_default_recipe:
        raise UserError(
            "the job names no recipe: write behind the -- what it is to run, for example -- demo --steps 100"
        )
    if not told.recipe_name.endswith(".toml") or Path(told.recipe_name).exists():  # else it is where the job will be
        told.load_config()
    return ClusterJob(name=name, words=tuple(words))
