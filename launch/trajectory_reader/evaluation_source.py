"""Reads the trajectories that an evaluation saved.

The last line of an attempt counts, as a failed attempt may have been run again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

import msgspec

from actors.agents.hermes import HERMES
from actors.agents.registry import load_call_format, make_agent
from actors.rollout.chat_policy import truncate_by_length
from actors.tokens.chat_format import load_tokenizer
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.control_tokens import ControlTokens
from actors.tokens.truncation import truncate_text
from launch.evaluation.evaluation_options import SolverKind
from launch.evaluation.results.evaluation_folder import TRAJECTORIES_FILE, read_attempt_records, read_spec
from launch.evaluation.results.evaluation_settings import EvaluationSettings, read_evaluation_settings
from launch.trajectory_reader.recorded_trajectory import (
    RecordedReply,
    RecordedTokens,
    RecordedTrajectory,
    TrajectoryOrigin,
    TrajectoryPredicate,
    require_native_agent,
)
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.evaluation import AttemptId, AttemptRecord
from protocol.run_directory.file_tail import decode_line, read_lines


class _ObservationLine(msgspec.Struct):
    tool: str = ""
    exit_code: int | None = None


class _Segment(msgspec.Struct):
    token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]


class _TrajectoryLine(msgspec.Struct):
    task: str
    number: int
    messages: list[ChatMessage]
    observed: list[_ObservationLine | None] = msgspec.field(default_factory=list[_ObservationLine | None])
    segments: list[_Segment] = msgspec.field(default_factory=list[_Segment])


_LINE = msgspec.json.Decoder(_TrajectoryLine)


@dataclass(frozen=True, slots=True)
class EvaluationTrajectories:
    """The saved trajectories of an evaluation."""

    path: Path
    origin: TrajectoryOrigin
    settings: EvaluationSettings
    attempts: Mapping[AttemptId, AttemptRecord]

    def read_matching(self, matches: TrajectoryPredicate) -> Iterator[RecordedTrajectory]:
        """Yield the trajectories whose task and reward match; attempts without a verdict are left out.  Raises
        UserError."""
        newest = {AttemptId(line.task, line.number): at for at, line in self._lines()}
        for at, line in self._lines():
            attempt = AttemptId(line.task, line.number)
            verdict = self.attempts[attempt].verdict if attempt in self.attempts else None
            if newest[attempt] == at and verdict is not None and matches(line.task, verdict.reward):
                yield self._recorded(line)

    def read_one(self, attempt: AttemptId) -> RecordedTrajectory:
        """Return the trajectory of one attempt.  Raises UserError."""
        last: _TrajectoryLine | None = None
        known: set[str] = set()
        for _, line in self._lines():
            known.add(f"{line.task}/{line.number}")
            if (line.task, line.number) == attempt:
                last = line
        if last is None:
            near = did_you_mean(f"{attempt.task}/{attempt.number}", known)
            raise UserError(
                f"{self.path} has no trajectory {attempt.task}/{attempt.number}{near}: {TRAJECTORIES_FILE} has "
                f"{len(known)}, each named TASK/ATTEMPT, from 0 on"
            )
        return self._recorded(last)

    def _lines(self) -> Iterator[tuple[int, _TrajectoryLine]]:
        file = self.path / TRAJECTORIES_FILE
        for number, raw in enumerate(read_lines(file), 1):
            if (line := decode_line(_LINE, raw)) is None:
                raise UserError(f"{file}:{number} is not a trajectory of an evaluation: remove the line")
            yield number, line

    def _recorded(self, line: _TrajectoryLine) -> RecordedTrajectory:
        record = self.attempts.get(AttemptId(line.task, line.number))
        opening, replies = _split_messages(line.messages, line.observed)
        usage = record.usage if record else None
        return RecordedTrajectory(
            f"{self.path.name}/{line.task}/{line.number}",
            line.task,
            opening,
            _with_tokens(replies, line.segments),
            record.verdict if record else None,
            usage.prompt_tokens if usage else 0,
            usage.completion_tokens if usage else 0,
        )


def open_evaluation_trajectories(path: Path) -> EvaluationTrajectories:
    """Open an evaluation's folder.  Raises UserError if it is not one, or if it saved no trajectories."""
    spec = read_spec(path)
    if not (path / TRAJECTORIES_FILE).is_file():
        raise UserError(
            f"{path} has no {TRAJECTORIES_FILE}: run the evaluation again with --save-trajectories and another "
            f"folder, --output {shlex.quote(f'{path}-saved')}"
        )
    settings = read_evaluation_settings(path)
    config = settings.config
    require_native_agent(path, config)
    model = spec.model_name or spec.model or spec.solver
    facts = {"evaluation": path.name, "recipe": config.run.name}
    agent_spec = config.agent.make_spec()
    is_served = spec.solver == SolverKind.SERVED
    calls = load_call_format(agent_spec.settings, spec.model) if is_served else HERMES
    shorten = _make_shortener(Path(spec.model)) if is_served else truncate_by_length
    origin = TrajectoryOrigin(str(path), model, make_agent(agent_spec, calls), config, facts, shorten)
    return EvaluationTrajectories(path, origin, settings, read_attempt_records(path))


def _make_shortener(model: Path) -> Callable[[str, int], str]:
    """Return a function that truncates text with the tokenizer of a model folder."""
    control_tokens = cache(lambda: ControlTokens(load_tokenizer(str(model))))
    return lambda text, tokens: truncate_text(control_tokens(), text, tokens)


def _split_messages(
    messages: Sequence[ChatMessage], observed: Sequence[_ObservationLine | None]
) -> tuple[tuple[ChatMessage, ...], tuple[RecordedReply, ...]]:
    """Split messages into the opening, which may contain assistant messages, and a reply for each of ``observed``."""
    replies_at = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    begins = replies_at[max(0, len(replies_at) - len(observed)) :]
    ends = [*begins[1:], len(messages)]
    replies = tuple(
        RecordedReply(
            messages[begin]["content"],
            tuple(messages[begin + 1 : end]) if noted else None,
            _calls(noted) if noted else None,
            noted.exit_code if noted else None,
        )
        for begin, end, noted in zip(begins, ends, observed, strict=False)
    )
    return tuple(messages[: begins[0] if begins else len(messages)]), replies


def _calls(noted: _ObservationLine) -> int:
    return len(noted.tool.split(",")) if noted.tool else 0


def _with_tokens(replies: tuple[RecordedReply, ...], segments: Sequence[_Segment]) -> tuple[RecordedReply, ...]:
    """Return the replies with their tokens, if the model was served by longshore and its history is one segment."""
    if len(segments) != 1:
        return replies
    runs = _sampled_runs(segments[0])
    if len(runs) != len(replies):
        return replies
    return tuple(replace(reply, sampled=run) for reply, run in zip(replies, runs, strict=True))


def _sampled_runs(segment: _Segment) -> list[RecordedTokens]:
    """Return the sampled tokens of each reply; the tokens between two replies were not sampled."""
    found: list[RecordedTokens] = []
    start = 0
    for sampled, each in groupby(range(len(segment.token_ids)), key=lambda index: segment.loss_mask[index]):
        end = start + sum(1 for _ in each)
        if sampled:
            found.append(RecordedTokens(tuple(segment.token_ids[start:end]), tuple(segment.logprobs[start:end]), start))
        start = end
    return found
