"""``longshore VERB …`` runs the module of the verb; ``longshore`` alone lists the verbs and imports none of them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from protocol.cli.exit_codes import main_guard
from protocol.cli.suggestions import did_you_mean
from protocol.dependencies import longshore_version
from protocol.errors import UserError

if TYPE_CHECKING:  # it loads the parser
    from protocol.cli.arguments import CommandArguments
    from protocol.cli.command import Command


class Verb(NamedTuple):
    module: str
    """Module that is the command; ``python -m MODULE`` is the same program."""
    summary: str

    def load_command(self) -> Command[CommandArguments]:
        """Import the module and return its command."""
        found = importlib.import_module(self.module)
        if hasattr(found, "__path__"):
            found = importlib.import_module(f"{self.module}.__main__")
        return found.COMMAND


VERB_GROUPS = {
    "train": {
        "cluster": Verb("launch.cluster", "train a model with a recipe, from warm start to report"),
        "sft": Verb("launch.sft", "train on conversations and recorded trajectories, supervised"),
        "sweep": Verb("launch.sweep", "run trainings or evaluations over a grid of settings"),
    },
    "prepare": {
        "doctor": Verb("launch.doctor", "check whether this machine can run a recipe"),
        "plan": Verb("launch.plan", "estimate a run's memory, speed and machines"),
        "simulate": Verb("launch.simulate", "simulate throughput and staleness of training on a cluster"),
        "templates": Verb("launch.templates", "write a Slurm script or a KubeRay manifest for a run"),
    },
    "watch and steer": {
        "monitor": Verb("launch.monitor", "watch a run, live or finished, in a browser or a terminal"),
        "ctl": Verb("launch.control.ctl", "show a run's state, and steer it"),
        "runs": Verb("launch.runs", "list, compare, query and prune runs"),
        "report": Verb("launch.report", "write a run's report again"),
        "trace": Verb("launch.trace", "write a timeline of a run for ui.perfetto.dev"),
        "exporters": Verb("launch.exporters", "send a run's metrics to Prometheus, W&B, TensorBoard or trackio"),
    },
    "evaluate": {
        "evaluate": Verb("launch.evaluation.evaluate", "evaluate a model on tasks: pass@k, errors, tokens"),
        "compare": Verb("launch.evaluation.compare", "compare evaluations of the same tasks, task by task"),
    },
    "tasks and trajectories": {
        "tasks": Verb("sandbox.tasks", "list, validate, convert and generate data sets of tasks"),
        "data": Verb("launch.data", "fetch SWE-SYNTH's bugs from a bucket"),
        "replay": Verb("launch.replay", "replay a trajectory in a fresh sandbox, or a run's training"),
        "export": Verb("launch.export", "export trajectories as ShareGPT, ATIF or Hugging Face"),
        "journal": Verb("protocol.journal", "check or repair the trajectory store of a run that is not running"),
    },
    "sandboxes": {
        "host": Verb("sandbox.host", "set up this machine for sandboxes, or remove what a run left on it"),
        "images": Verb("sandbox.images", "build, pull, import, list and remove task images"),
        "toolchain": Verb("sandbox.toolchain", "build or check the programs that every sandbox mounts"),
        "harness": Verb("actors.harnesses", "install published agent harnesses, such as Claude Code and Codex"),
        "browser": Verb("sandbox.browser", "install the browser of agents that use web pages"),
        "server": Verb("sandbox.server", "serve this machine's sandboxes over HTTP"),
        "router": Verb("sandbox.router", "serve many pool servers behind one address"),
        "environment": Verb("launch.environment", "serve whole episodes to runs on other machines"),
    },
    "measure": {
        "bench": Verb("launch.bench", "measure one part of longshore, or try all recipes"),
        "stress": Verb("sandbox.stress", "start many sandboxes, verify every answer, inject faults"),
    },
    "shell": {
        "completion": Verb("launch.completion", "print a completion script for bash, zsh or fish"),
    },
}
_JSON = "--json"
VERBS = {name: verb for group in VERB_GROUPS.values() for name, verb in group.items()}


def main() -> None:
    """Run the console command ``longshore``."""
    sys.exit(main_guard(_run))


def _run() -> None:
    words = sys.argv[1:]
    if words[:1] == [_JSON]:
        words = [*words[1:], _JSON]
    if words[:1] == ["help"] and words[1:2] and words[1] in VERBS:
        words = [words[1], "--help"]
    if words and (verb := VERBS.get(words[0])) is not None:
        os.execv(sys.executable, [sys.executable, "-m", verb.module, *words[1:]])  # noqa: S606  the same interpreter
    elif _JSON in words:
        from protocol.cli.output import JsonOutput

        with JsonOutput(enabled=True) as out:
            out.set_result(_answer([word for word in words if word != _JSON])[1])
    else:
        sys.stdout.write(_answer(words)[0])


def _answer(words: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return the text and the object for a command line without a verb.  Raises UserError for an unknown word."""
    if not words or words[0] in {"-h", "--help", "help"}:
        return format_verbs(), {"commands": {name: verb.summary for name, verb in VERBS.items()}}
    if words[0] == "--version":
        version = longshore_version()
        return f"longshore {version}\n", {"version": version}
    kind = "option" if words[0].startswith("-") else "command"
    near = did_you_mean(words[0], [*VERBS, "--version", "--help"])
    raise UserError(f"longshore has no {kind} '{words[0]}': the commands are {', '.join(VERBS)}{near}")


def format_verbs() -> str:
    """Return the usage of ``longshore``, with the verbs in their groups."""
    width = max(map(len, VERBS))
    lines = ["usage: longshore VERB …", "       longshore VERB --help", "       longshore --version"]
    for group, verbs in VERB_GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:<{width}}  {verb.summary}" for name, verb in verbs.items())]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
