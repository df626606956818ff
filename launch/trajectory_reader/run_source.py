"""Reads the trajectories that a run exported.

A run stores token ids.  The agent of its configuration parses the replies, and inverting the model's chat template
recovers the messages between them (:mod:`launch.trajectory_reader.template_inversion`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from actors.agents.agent import ActionOutcome, Agent
from actors.agents.registry import find_call_format, make_agent
from actors.tokens.chat_format import ChatFormat, load_chat_format
from actors.tokens.truncation import truncate_text
from launch.config import RunConfig
from launch.run_records.stored_config import load_stored_config
from launch.trajectory_reader.recorded_trajectory import (
    RecordedReply,
    RecordedTokens,
    RecordedTrajectory,
    TrajectoryOrigin,
    TrajectoryPredicate,
    read_reply,
    require_native_agent,
)
from launch.trajectory_reader.template_inversion import TemplateInverter
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.evaluation import AttemptVerdict
from protocol.run_directory.trajectory_export import (
    EXPORT_INDEX,
    TRAJECTORIES_FOLDER,
    ExportIndexEntry,
    read_export_index,
    read_exported_trajectory,
)
from protocol.trajectory import Segment, Trajectory, Turn, TurnKind

_TOKENIZER = "tokenizer_config.json"
_ATTEMPT = re.compile(r"-a\d+$")
"""Suffix of an attempt in events and recordings; the export has one attempt of each trajectory."""


@dataclass(frozen=True, slots=True)
class RunTrajectories:
    """The exported trajectories of a run."""

    path: Path
    origin: TrajectoryOrigin
    chat: ChatFormat

    def read_matching(self, matches: TrajectoryPredicate) -> Iterator[RecordedTrajectory]:
        """Yield the trajectories whose task and reward match, in order of arrival.  Raises UserError."""
        inverter = TemplateInverter(self.chat)
        for entry in read_export_index(self.path):
            if matches(entry.task, entry.reward):
                yield self._recorded(entry, inverter)

    def read_one(self, name: str) -> RecordedTrajectory:
        """Return the trajectory with this id; an attempt's suffix is ignored.  Raises UserError."""
        known: list[str] = []
        for entry in read_export_index(self.path):
            if entry.trajectory == _ATTEMPT.sub("", name):
                return self._recorded(entry, TemplateInverter(self.chat))
            known.append(entry.trajectory)
        raise UserError(
            f"{self.path} has no trajectory {name!r}{did_you_mean(name, known)}: "
            f"{self.path / TRAJECTORIES_FOLDER / EXPORT_INDEX} lists its {len(known)}, without those of evaluations"
        )

    def _recorded(self, entry: ExportIndexEntry, inverter: TemplateInverter) -> RecordedTrajectory:
        trajectory = read_exported_trajectory(self.path, entry)
        return build_recorded_trajectory(
            f"{self.path.name}/{entry.trajectory}", trajectory, self.origin.agent, self.chat, inverter
        )


def open_run_trajectories(path: Path) -> RunTrajectories:
    """Open a run.  Raises UserError if it is no run, if a harness made it, or if its tokenizer is missing."""
    config = load_stored_config(path)
    require_native_agent(path, config)
    if not (path / TRAJECTORIES_FOLDER / EXPORT_INDEX).is_file():
        raise UserError(f"{path} has no {TRAJECTORIES_FOLDER}/{EXPORT_INDEX}: none of its trajectories is finished yet")
    spec = config.agent.make_spec()
    chat = _load_chat(path, config, make_agent(spec))
    agent = make_agent(spec, find_call_format(spec.settings, chat.tokenizer))
    facts = {"run": path.name, "recipe": config.run.name}
    model = str(config.model.path or f"{config.run.name}'s model of {path.name}")
    shorten = partial(truncate_text, chat.control_tokens)
    return RunTrajectories(path, TrajectoryOrigin(str(path), model, agent, config, facts, shorten), chat)


def _load_chat(path: Path, config: RunConfig, agent: Agent) -> ChatFormat:
    """Load the run's chat format; a run that goes on may remove the weights that are read for others."""
    while True:
        folder = _tokenizer(path, config)
        try:
            return load_chat_format(str(folder), agent.offered_tools, thinking=config.agent.thinking.template_argument)
        except UserError:
            if (folder / _TOKENIZER).is_file():
                raise


def _tokenizer(path: Path, config: RunConfig) -> Path:
    """Return a folder that has the run's tokenizer: its model, or its newest weights.  Raises UserError."""
    own = [config.model.path] if config.model.path is not None else []
    folders = [*own, path / "model", *sorted((path / "weights").glob("v*"), reverse=True)]
    for folder in folders:
        if (folder / _TOKENIZER).is_file():
            return folder.absolute()
    raise UserError(
        f"{path} has no tokenizer to decode its tokens with: put the model's tokenizer files into {path / 'model'}"
    )


def build_recorded_trajectory(
    name: str, trajectory: Trajectory, agent: Agent, chat: ChatFormat, inverter: TemplateInverter
) -> RecordedTrajectory:
    """Return a trajectory of token ids as a conversation."""
    spans = [_SegmentTurn(segment, turn) for segment in trajectory.segments for turn in segment.turns]
    first = next((span for span in spans if span.turn.kind is TurnKind.PROMPT), None)
    replies: list[RecordedReply] = []
    for span, after in zip(spans, [*spans[1:], None], strict=False):
        if span.turn.kind is TurnKind.MODEL:
            reply = RecordedReply(chat.reply_prefix + chat.decode_reply(span.ids), sampled=span.sampled)
            replies.append(_with_observation(reply, after, agent, inverter))
    tests = trajectory.tests
    verdict = AttemptVerdict(
        trajectory.passed,
        trajectory.reward.total,
        sum(test.passed for test in tests) / len(tests) if tests else 0.0,
        trajectory.status,
        trajectory.reward.parts,
        tests,
    )
    return RecordedTrajectory(
        name,
        trajectory.request.task,
        inverter.recover_opening(first.ids) if first else (),
        tuple(replies),
        verdict,
        sum(reply.sampled.prompt_tokens for reply in replies if reply.sampled),
        trajectory.sampled_tokens,
    )


def _with_observation(
    reply: RecordedReply, after: _SegmentTurn | None, agent: Agent, inverter: TemplateInverter
) -> RecordedReply:
    """Return ``reply`` with the observation in the next span, if that is one, or with the opening of the next step."""
    if after is None or after.turn.kind is TurnKind.MODEL:
        return reply
    if after.turn.kind is TurnKind.PROMPT:
        return replace(reply, observation=inverter.recover_opening(after.ids))
    parsed = read_reply(agent, reply, last=False)
    expected = agent.format_outcomes([ActionOutcome(action, "") for action in parsed.actions]) or []
    calls_run = len(after.turn.tool.split(",")) if after.turn.tool else 0
    messages = inverter.recover_messages(after.ids, [message["role"] for message in expected])
    return replace(reply, observation=messages, calls_run=calls_run, exit_code=after.turn.exit_code)


@dataclass(frozen=True, slots=True)
class _SegmentTurn:
    """A turn with its segment."""

    segment: Segment
    turn: Turn

    @property
    def ids(self) -> list[int]:
        return self.segment.token_ids[self.turn.start : self.turn.end].tolist()

    @property
    def sampled(self) -> RecordedTokens:
        logprobs = self.segment.logprobs[self.turn.start : self.turn.end]
        return RecordedTokens(tuple(self.ids), tuple(logprobs.tolist()), self.segment.offset + self.turn.start)
