"""Conversations in the field's shapes, from ``.jsonl`` (a record a line), ``.json`` (a list of records, or one) and
``.parquet`` (a record a row).

``{"messages": [{"role", "content", "tool_calls"?, "reasoning_content"?}], "tools"?, "score"|"reward"?, "weight"?}``, or
ShareGPT's ``{"conversations": [{"from", "value"}], "system"?, "tools"?}``, or a sample of affinetes': SWE-SYNTH's
``{"extra": {"conversation": [{"role", "content"}], "tools"?}, "score"}``, LIVEWEB's ``{"trajectory":
[{"observation", "action"}], "score"}``.  An assistant's message has loss unless it says ``"train": false`` or
``"weight": 0``.  Other keys are passed over.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from protocol.cli.suggestions import did_you_mean
from protocol.cli.validation_errors import describe_invalid_value
from protocol.errors import UserError
from protocol.files.parquet import read_parquet_rows
from protocol.files.regular_files import read_regular_file, require_regular_file

MAX_LINE_BYTES = 128 << 20
_ROLES = {
    **{role: role for role in ("system", "user", "assistant", "tool")},
    "developer": "system",
    "human": "user",
    "gpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "function": "tool",
}
"""Role in the data → role in templates."""


_SHAPES = "'messages', 'conversations', 'extra.conversation' and 'trajectory'"


class TrainingDataError(UserError):
    """A record that cannot be trained; the message has its position and the reason."""


@dataclass(frozen=True, slots=True)
class Conversation:
    location: str
    """File and line, for messages."""
    messages: tuple[ChatMessage, ...]
    """No two consecutive messages are the assistant's, and the first is not."""
    trained_messages: frozenset[int]
    """Indices of the assistant's messages with loss; at least one."""
    tools: tuple[object, ...] = ()
    """Schemas of the functions that the assistant may call."""
    score: float | None = None
    weight: float = 1.0


def _decoded(value: object) -> object:
    """Return the value of a string of JSON, which some data sets have in place of an object."""
    return orjson.loads(value) if isinstance(value, str) else value


def _arguments(value: object) -> object:
    """Return the arguments of a call; a call without any may have an empty string or null."""
    return {} if value is None or value == "" else _decoded(value)


def _call(value: object) -> object:
    """Return a bare call in OpenAI's form, under ``function``."""
    return {"function": value} if isinstance(value, dict) and "function" not in value else value  # pyright: ignore[reportUnknownVariableType]  checked by what comes after


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Function(_Shape):
    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[dict[str, Any], BeforeValidator(_arguments)] = {}


class _Call(_Shape):
    function: _Function


class _Text(_Shape):
    type: Literal["text"]
    text: str


class _Message(_Shape):
    role: str
    content: str | list[_Text] | None = None
    reasoning_content: str | None = None
    tool_calls: list[Annotated[_Call, BeforeValidator(_call)]] | None = None
    train: bool = True
    weight: Literal[0, 1] = 1

    @model_validator(mode="before")
    @classmethod
    def _accept_function_call(cls, value: object) -> object:
        """Return a message with OpenAI's older key for a call as one with the newer key."""
        if not isinstance(value, dict):
            return value
        message = cast("dict[str, object]", value)
        return {**message, "tool_calls": [call]} if (call := message.get("function_call")) else message


class _Record(_Shape):
    messages: list[_Message]
    tools: Annotated[list[dict[str, Any]] | None, BeforeValidator(_decoded)] = None
    score: float | None = None
    reward: float | None = None
    weight: Annotated[float, Field(ge=0)] = 1.0


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file.  Raises TrainingDataError for the first record that cannot be trained,
    UserError if ``path`` cannot be read."""
    try:
        if path.suffix == ".json":
            yield from _read_json(path)
        elif path.suffix == ".parquet":
            yield from _read_parquet(path)
        else:
            yield from _read_json_lines(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _read_json_lines(path: Path) -> Iterator[Conversation]:
    require_regular_file(path)
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise TrainingDataError(f"{path}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB")
            if line.removeprefix(codecs.BOM_UTF8).strip():
                yield parse_conversation(
                    _parsed(line, f"{path}:{number}", "each line is a record of its own"), f"{path}:{number}"
                )


def _read_json(path: Path) -> Iterator[Conversation]:
    found = _parsed(read_regular_file(path), str(path), "name a file with a record a line .jsonl")
    records = cast("list[object]", found) if isinstance(found, list) else [found]
    for number, record in enumerate(records, 1):
        yield parse_conversation(record, f"{path}: record {number}")


def _read_parquet(path: Path) -> Iterator[Conversation]:
    try:
        for number, record in enumerate(read_parquet_rows(path), 1):
            yield parse_conversation(record, f"{path}: row {number}")
    except ValueError as error:
        raise UserError(f"cannot read {path}: {error}") from error


def _parsed(data: bytes, where: str, advice: str) -> object:
    try:
        return orjson.loads(data.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise TrainingDataError(f"{where}: no valid JSON ({error}): {advice}") from error


def parse_conversation(record: object, where: str) -> Conversation:
    """Return the conversation of one record.  Raises TrainingDataError."""
    if not isinstance(record, dict):
        raise TrainingDataError(f"{where}: a record is an object with one of {_SHAPES}, and this is none")
    try:
        read = _Record.model_validate(_in_one_shape(cast("dict[str, object]", record), where))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"] if not str(part).startswith(("list[", "function-")))
        raise TrainingDataError(f"{where}: {key}: {describe_invalid_value(problem)}") from error
    if read.score is not None and read.reward not in {None, read.score}:
        raise TrainingDataError(
            f"{where}: score {read.score} and reward {read.reward} are two names for one thing: keep one"
        )
    messages = [_message(message, f"{where}: message {number}") for number, message in enumerate(read.messages, 1)]
    trained = {
        index
        for index, message in enumerate(read.messages)
        if messages[index]["role"] == "assistant" and message.train and message.weight
    }
    _check_order(messages, trained, where)
    score = read.reward if read.score is None else read.score
    return Conversation(where, tuple(messages), frozenset(trained), tuple(read.tools or ()), score, read.weight)


def _in_one_shape(record: Mapping[str, object], where: str) -> dict[str, object]:
    """Return a record of any shape under OpenAI's keys."""
    if "messages" in record:
        return dict(record)
    if (turns := _list_in(record, "conversations")) is not None:
        first = [{"role": "system", "content": record["system"]}] if record.get("system") else []
        return {**record, "messages": [*first, *map(_openai, turns)]}
    if (turns := _list_in(record, "extra", "conversation")) is not None:
        return {**record, "messages": turns, "tools": cast("dict[str, object]", record["extra"]).get("tools")}
    if (steps := _list_in(record, "trajectory")) is not None:
        return {**record, "messages": [message for step in steps for message in _step_messages(step)]}
    raise TrainingDataError(f"{where}: none of {_SHAPES} is a list in it (keys: {', '.join(record)})")


def _list_in(value: object, *keys: str) -> list[object] | None:
    for key in keys:
        value = cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None
    return cast("list[object]", value) if isinstance(value, list) else None


def _step_messages(step: object) -> Iterator[object]:
    """Yield a web agent's observation and its action as messages."""
    if not (isinstance(step, dict) and "observation" in step and "action" in step):
        yield cast("object", step)
        return
    values = cast("dict[str, object]", step)
    yield {"role": "user", "content": _text(values["observation"])}
    yield {"role": "assistant", "content": _action_text(values["action"])}


def _action_text(action: object) -> str:
    """Return an action in the form that :mod:`actors.agents.json_action` reads."""
    if isinstance(action, str):
        return action
    alone: dict[str, object] = {"action": action}
    whole = cast("dict[str, object]", action) if isinstance(action, dict) and "action" in action else alone
    return f"```json\n{_text(whole)}\n```"


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _openai(turn: object) -> object:
    if not isinstance(turn, dict) or "from" not in turn:
        return cast("object", turn)
    values = cast("dict[str, object]", turn)
    value = values.get("value")
    content = {"tool_calls": _calls(value)} if values["from"] == "function_call" else {"content": value}
    return {**values, "role": values["from"], **content}


def _calls(value: object) -> object:
    """Return the calls of a ShareGPT message, which has one or a list of them as a string of JSON."""
    try:
        found = _decoded(value)
    except orjson.JSONDecodeError:
        return value
    return cast("object", found) if isinstance(found, list) else [found]


def _message(read: _Message, where: str) -> ChatMessage:
    role = _ROLES.get(read.role)
    if role is None:
        raise TrainingDataError(
            f"{where}: no role is called '{read.role}'{did_you_mean(read.role, _ROLES)}; the roles are "
            f"{', '.join(_ROLES)}"
        )
    content = read.content if isinstance(read.content, str) else "".join(part.text for part in read.content or ())
    message: ChatMessage = {"role": role, "content": content}
    if role != "assistant":
        return message
    if read.reasoning_content:
        message["reasoning_content"] = read.reasoning_content
    if read.tool_calls:
        message["tool_calls"] = [_templated(call.function) for call in read.tool_calls]
    if not content and len(message) == 2:
        raise TrainingDataError(f"{where}: the assistant's message has neither text nor calls: remove it")
    return message


def _templated(function: _Function) -> ToolCallMessage:
    return {"type": "function", "function": {"name": function.name, "arguments": function.arguments}}


def _check_order(messages: list[ChatMessage], trained: set[int], where: str) -> None:
    if not messages:
        raise TrainingDataError(f"{where}: the conversation is empty: remove it")
    if not trained:
        raise TrainingDataError(
            f"{where}: no message of an assistant has loss: there is nothing to learn from, remove it"
        )
    roles = ["assistant", *(message["role"] for message in messages)]
    for number, pair in enumerate(pairwise(roles), 1):
        if pair == ("assistant", "assistant"):
            why = (
                "is the first and an assistant's: add the message that it answers"
                if number == 1
                else "and the one before are both an assistant's: join the two"
            )
            raise TrainingDataError(f"{where}: message {number} {why}")
