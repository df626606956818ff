"""The configuration, directory, events and console that all parts of a run share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from launch.config import RunConfig
from launch.run_records.run_directory import RunDirectory
from protocol.cli.output import display_path
from protocol.events import EventLog
from protocol.run_directory.process_log import get_logger

_log = get_logger(__name__)


@dataclass(slots=True)
class RunContext:
    config: RunConfig
    """The configuration; it is replaced when a person changes a key during the run."""
    directory: RunDirectory
    events: EventLog
    console: Console

    def enter_phase(self, name: str, detail: str = "") -> None:
        """Report that the run enters a phase."""
        self.events.emit("run.phase", phase=name, detail=detail)
        _log.info("phase", phase=name, detail=detail)

    def raise_alert(self, name: str, text: str) -> None:
        self.events.emit("alert.raised", name=name, text=text)

    def report_started(self, url: str) -> None:
        """Report that the run has started; ``url`` is the address of the live page, empty without one."""
        config = self.config
        self.events.emit(
            "run.started",
            run=self.directory.run_id,
            recipe=config.run.name,
            mode=config.run.mode.value,
            nodes=config.cluster.nodes,
            seed=config.run.seed,
            steps=config.run.steps,
            max_staleness=config.staleness.max_staleness,
            evaluates=config.evaluation.tasks_per_family > 0,
            url=url,
        )

    def report_torn_checkpoint(self, path: Path, damage: str) -> None:
        """Report a damaged checkpoint, which was set aside as ``path``."""
        self.events.emit("checkpoint.damaged", path=str(path), why=damage)
        self.console.print(f"passed over: the checkpoint {display_path(path)} is damaged ({damage})")

    def limit_to_epochs(self, tasks: int) -> None:
        """Apply ``stop.after_epochs`` now that the number of training ``tasks`` is known, and report the limit."""
        steps = self.config.run.steps
        self.config = config = self.config.limited_to_epochs(tasks)
        if config.run.steps < steps:
            groups = config.rollout.groups_per_step
            limit = f"stop.after_epochs = {config.stop.after_epochs}: {config.run.steps} steps of {groups} groups"
            self.raise_alert("training_ends", f"{limit}, for {tasks} tasks")

    @property
    def held_out_families(self) -> tuple[str, ...]:
        """Families that only evaluations use, at most one."""
        family = self.config.data.held_out_family
        return (family,) if family else ()
