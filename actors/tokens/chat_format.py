"""A chat template as token ids; sampled text is never tokenized again.

The next prompt is all previous ids, with the sampled ids unchanged, and the *delta*: the ids that the template adds for
the new messages alone.  For a template that keeps its prefix (a test renders both ways) this equals rendering the whole
conversation.  If a template rewrites history, as Qwen3's does with earlier ``<think>`` blocks, the earlier ids stay
unchanged nevertheless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, Protocol, TypedDict, cast

from jinja2 import TemplateError

from actors.tokens.reasoning import THINK_START
from protocol.errors import UserError
from sandbox.tools import Toolset

_PROBE = "\u2063probe\u2063"


class FunctionCall(TypedDict):
    """A function and its arguments."""

    name: str
    arguments: dict[str, object]


class ToolCallMessage(TypedDict):
    """A tool call in the form that templates expect."""

    type: Literal["function"]
    function: FunctionCall


class ChatMessage(TypedDict):
    """A message in the form that templates expect."""

    role: str
    content: str
    reasoning_content: NotRequired[str]
    """The assistant's thoughts; ``content`` may hold them too, between ``<think>`` and ``</think>``."""
    tool_calls: NotRequired[list[ToolCallMessage]]


class Tokenizer(Protocol):
    """The methods of a Hugging Face tokenizer that are used here."""

    eos_token_id: int

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...
    def apply_chat_template(
        self,
        conversation: Sequence[ChatMessage],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        tools: Sequence[object] | None,
        **template: object,
    ) -> str: ...


_PROBES: Sequence[ChatMessage] = ({"role": "user", "content": _PROBE}, {"role": "assistant", "content": _PROBE})


def load_tokenizer(model_path: str) -> Tokenizer:
    """Load the tokenizer of a Hugging Face folder.  Raises UserError if there is none or it has no chat template."""
    from transformers import AutoTokenizer

    fix = "point model.path at a folder saved with tokenizer.save_pretrained()"
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_path)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped library
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{model_path} has no usable tokenizer ({error}): {fix}") from error
    if not getattr(tokenizer, "chat_template", None):  # pyright: ignore[reportUnknownArgumentType]  # untyped library
        raise UserError(f"the tokenizer in {model_path} has no chat template: {fix}")
    return cast("Tokenizer", tokenizer)


def load_chat_format(model_path: str, offered: Toolset, *, thinking: bool | None = None) -> ChatFormat:
    """Load the chat format of the model in ``model_path``; the first prompt lists the tools that are ``offered``.

    Raises UserError if the model's template does not support that."""
    schemas = [tool.schema for tool in offered.values()]
    return ChatFormat(load_tokenizer(model_path), tools=schemas or None, thinking=thinking)


class ChatFormat:
    """Token ids of first prompts and deltas for one tokenizer, tool list and ``thinking``.

    ``thinking`` is the template's argument ``enable_thinking``; None leaves it out.  Raises UserError for a template
    that leaves the tools out, ignores that argument, or does not end a turn with a special token."""

    def __init__(
        self, tokenizer: Tokenizer, *, tools: Sequence[object] | None = None, thinking: bool | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self._tools = tools
        self._arguments = {} if thinking is None else {"enable_thinking": thinking}
        if thinking is not None:
            self._check_thinking(thinking)
        turn = self._render(_PROBES, generate=False)
        if tools and turn == self._render(_PROBES, generate=False, offer=False):
            raise UserError(
                "the chat template of this model omits tools, so the agent would not know of any: set agent.tools = "
                "false and describe them in agent.system_prompt, or give the tokenizer a template that renders tools"
            )
        end = self._encode(turn[turn.rindex(_PROBE) + len(_PROBE) :])[:1]
        if not end or tokenizer.decode(end, skip_special_tokens=True):
            raise UserError(
                "the chat template of this model does not end an assistant's turn with a special token, so replies "
                "would not end: give the tokenizer a template that writes one, <|im_end|> in Qwen's models"
            )
        self.turn_end_id = end[0]
        """The token after each assistant's turn; not always the tokenizer's end of text, as in Qwen3's base models."""
        self._turn_end_text = tokenizer.decode(end, skip_special_tokens=False)
        self._ends = {self.turn_end_id, tokenizer.eos_token_id}
        prompt = self._render(_PROBES[:1], generate=True)
        self.reply_prefix = f"{THINK_START}\n" if prompt.rstrip().endswith(THINK_START) else ""
        """The text with which the prompt begins each reply: templates of models that always think open the thoughts."""

    def _check_thinking(self, thinking: bool) -> None:
        prompt = self._render(_PROBES[:1], generate=True)
        self._arguments["enable_thinking"] = not thinking
        opposite = self._render(_PROBES[:1], generate=True)
        self._arguments["enable_thinking"] = thinking
        if prompt == opposite:
            raise UserError(
                "the chat template of this model ignores enable_thinking: leave agent.thinking out, or set "
                "agent.thinking = 'no_think' if the model was trained with that word"
            )

    def _render(self, messages: Sequence[ChatMessage], *, generate: bool, offer: bool = True) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=generate,
                tools=self._tools if offer else None,
                **self._arguments,
            )
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise UserError(f"the chat template of this model refuses messages of {roles}: {error}") from error

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def encode_first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the ids of ``messages`` and the generation prompt."""
        return self._encode(self._render(messages, generate=True))

    def encode_reply(self, message: ChatMessage) -> list[int]:
        """Return the ids of the assistant's ``message`` after the generation prompt, as a model would sample them: with
        its thoughts and the end of its turn.

        Raises UserError if the template begins the turn with something else, or omits thoughts or calls."""
        prompt = self._render(_PROBES[:1], generate=True)
        whole = self._render([*_PROBES[:1], message], generate=False)
        if not whole.startswith(prompt):
            raise UserError(
                f"the chat template of this model ends its prompt with {prompt[-40:]!r} but does not begin this reply "
                "with it: add the missing part to the message (such as thoughts), or give the tokenizer another "
                "template"
            )
        reply = whole[len(prompt) : whole.rindex(self._turn_end_text)]
        parts = [call["function"]["name"] for call in message.get("tool_calls", ())]
        for part in (message.get("reasoning_content", "").strip(), *parts):
            if part not in reply:
                raise UserError(
                    f"the chat template of this model omits {part[:40]!r} from a reply (not every template supports "
                    "reasoning_content and tool_calls): write it into the content, or remove it"
                )
        return [*self._encode(reply), self.turn_end_id]

    def encode_delta(self, messages: Sequence[ChatMessage], *, closed: bool) -> list[int]:
        """Return the ids that follow a sampled assistant turn: its end if it was not sampled (``closed`` false), what
        the template puts around ``messages``, and the generation prompt."""
        whole = self._render([*_PROBES, *messages], generate=True)
        reply = whole.index(_PROBE, whole.index(_PROBE) + 1)  # the contents of ``messages`` come after it
        end = whole.index(self._turn_end_text, reply) + len(self._turn_end_text)
        added = self._encode(whole[end:])
        return added if closed else [self.turn_end_id, *added]

    def decode_reply(self, token_ids: Sequence[int]) -> str:
        """Return the text of sampled ids, without the end of the turn or of the text."""
        ids = token_ids[:-1] if token_ids and token_ids[-1] in self._ends else token_ids
        return self.tokenizer.decode(ids, skip_special_tokens=False)
