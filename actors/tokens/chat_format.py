"""A chat template as token ids; sampled text is never tokenized again.

The next prompt is all previous ids, with the sampled ids unchanged, and the *delta*: the ids that the template adds for
the new messages alone.  For a template that keeps its prefix (a test renders both ways) this equals rendering the whole
conversation.  If a template rewrites history, as Qwen3's does with earlier ``<think>`` blocks, the earlier ids stay
unchanged nevertheless.  No text of a message or a tool becomes a control token (:mod:`.control_tokens`).

A reply ends with a token of its own, or with the one that begins the next message (GLM's ``<|user|>`` and
``<|observation|>``); one that calls tools may end with another one than a reply without calls (gpt-oss' ``<|call|>``
and ``<|return|>``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from actors.tokens.chat_template import ChatTemplate, Tokenizer
from actors.tokens.control_tokens import ControlTokens
from actors.tokens.reasoning import THINK_START
from protocol.errors import UserError
from sandbox.tools import Toolset

_ASKED, _REPLIED, _FOLLOWING = "asked-7c1e", "replied-7c1e", "following-7c1e"
"""Contents of messages with which a template is tried."""
_ASKS: ChatMessage = {"role": "user", "content": _ASKED}
_RESULT: ChatMessage = {"role": "tool", "content": _FOLLOWING}


class TurnEnd(NamedTuple):
    """The control token with which a reply ends."""

    token_id: int
    text: str
    begins_next: bool
    """True if it is the mark of the message that follows."""


def load_tokenizer(model_path: str) -> Tokenizer:
    """Load the tokenizer of a Hugging Face folder.  Raises UserError if there is none or it has no chat template."""
    from transformers import AutoTokenizer

    fix = "point model.path at a folder saved with tokenizer.save_pretrained()"
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_path)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped library
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{model_path} has no usable tokenizer ({error}): {fix}") from error
    if not getattr(tokenizer, "chat_template", None):  # pyright: ignore[reportUnknownArgumentType]  # untyped library
        raise UserError(
            f"the tokenizer in {model_path} has no chat template (DeepSeek-V3.2 and V4 are published with a program "
            "instead): save one in it (tokenizer.chat_template = …; tokenizer.save_pretrained()), or evaluate the "
            "model at a URL, where its server writes the prompts (longshore evaluate --model URL)"
        )
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
        self.control_tokens = ControlTokens(tokenizer)
        self._render = ChatTemplate(tokenizer, self.control_tokens, tools=tools, thinking=thinking).render
        self._renders_several_calls = True
        if thinking is not None:
            other = ChatTemplate(tokenizer, self.control_tokens, tools=tools, thinking=not thinking)
            self._check_thinking(other)
        if tools:
            self._check_tools()
        end = self._find_end(_ASKS)
        if end is None:
            raise UserError(
                "the chat template of this model does not end an assistant's turn with a special token, so replies "
                "would not end: give the tokenizer a template that writes one, <|im_end|> in Qwen's models"
            )
        self._end = self._end_after_calls = end
        self.turn_end_id = end.token_id
        """The token after a reply without calls; not always the tokenizer's end of text, as in Qwen3's base models."""
        if tools:
            self._end_after_calls = self._find_end(_RESULT, end) or end
            self._renders_several_calls = self._accepts_several_calls()
        self.stop_ids = tuple(dict.fromkeys((end.token_id, self._end_after_calls.token_id)))
        """The tokens with which a reply may end."""
        self._ends = {*self.stop_ids, tokenizer.eos_token_id}
        prompt = self._render([_ASKS], generate=True)
        self.reply_prefix = f"{THINK_START}\n" if prompt.rstrip().endswith(THINK_START) else ""
        """The text with which the prompt begins each reply: templates of models that always think open the thoughts."""

    def _check_tools(self) -> None:
        if self._omits_tools():
            raise UserError(
                "the chat template of this model omits tools, so the agent would not know of any: set agent.tools = "
                "false and describe them in agent.system_prompt, or give the tokenizer a template that renders tools"
            )
        if _FOLLOWING not in self._text_after_reply([_RESULT], generate=True):
            raise UserError(
                "the chat template of this model omits the results of tools, so the agent would not read them: give "
                "the tokenizer a template that renders messages of the role tool"
            )

    def _omits_tools(self) -> bool:
        turn = [_ASKS, self._reply_before([])]
        shown = self._render(turn, generate=False)
        try:
            return shown == self._render(turn, generate=False, offer=False)
        except UserError:  # the template needs tools
            return False

    def _check_thinking(self, other: ChatTemplate) -> None:
        if self._render([_ASKS], generate=True) == other.render([_ASKS], generate=True):
            raise UserError(
                "the chat template of this model ignores enable_thinking: leave agent.thinking out, or set "
                "agent.thinking = 'no_think' if the model was trained with that word"
            )

    def check_text_history(self) -> None:
        """Raise UserError if the template cannot render earlier replies as the text that the model wrote."""
        reply = self._reply_before([_RESULT])
        if self.reply_prefix:
            reply["reasoning_content"] = _REPLIED
        text = self.reply_prefix + self.decode_reply(self.encode_reply(reply))
        said: ChatMessage = {"role": "assistant", "content": text}
        refused = "" if self.control_tokens.disarm(text, reply=True) == text else "it contains control tokens"
        try:
            self._render([_ASKS, said, _RESULT, said, _RESULT], generate=True)
        except UserError as error:
            refused = str(error)
        if refused:
            raise UserError(
                f"this model's earlier calls cannot be rendered again as text ({refused}): set agent.history = 'whole'"
            )

    def _find_end(self, following: ChatMessage, known: TurnEnd | None = None) -> TurnEnd | None:
        """Return the end of a reply to which the message ``following`` is the next; ``known`` if it is that."""
        last = self._text_after_reply([following], generate=False, with_messages=False)
        if known and known.text in last:
            return known
        middle = self._text_after_reply([following], generate=True).partition(_ASKED)[0].partition(_FOLLOWING)[0]
        for text, begins_next in ((last, False), (middle, True)):
            if token := self.control_tokens.find(text):
                if text.partition(token)[0].strip() and following is _ASKS:
                    return None
                return TurnEnd(self.control_tokens.encode(token)[0], token, begins_next)
        return None

    def _accepts_several_calls(self) -> bool:
        try:
            self._text_after_reply([_RESULT, _RESULT], generate=True)
        except UserError:
            return False
        return True

    def _text_after_reply(self, messages: Sequence[ChatMessage], *, generate: bool, with_messages: bool = True) -> str:
        """Return what the template writes after the reply before ``messages``, without these if ``with_messages`` is
        false."""
        turn = [_ASKS, self._reply_before(messages), *(messages if with_messages else ())]
        return self._render(turn, generate=generate).rpartition(_REPLIED)[2]

    def _reply_before(self, messages: Sequence[ChatMessage]) -> ChatMessage:
        """Return a reply that calls what ``messages`` are the results of: some templates render only these."""
        reply: ChatMessage = {"role": "assistant", "content": _REPLIED}
        calls = [self._call_of(message) for message in messages if message["role"] == "tool"]
        if calls:
            reply["tool_calls"] = calls if self._renders_several_calls else calls[:1]
        return reply

    def _call_of(self, result: ChatMessage) -> ToolCallMessage:
        call: ToolCallMessage = {
            "type": "function",
            "function": {"name": result.get("name", "call"), "arguments": {"text": _REPLIED}},
        }
        if "tool_call_id" in result:
            call["id"] = result["tool_call_id"]
        return call

    def encode_first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the ids of ``messages`` and the generation prompt."""
        return self.control_tokens.encode(self._render(messages, generate=True))

    def encode_reply(self, message: ChatMessage) -> list[int]:
        """Return the ids of the assistant's ``message`` after the generation prompt, as a model would sample them: with
        its thoughts and the end of its turn.

        Raises UserError if the template begins the turn with something else, or omits thoughts or calls."""
        prompt = self._render([_ASKS], generate=True)
        whole = self._render([_ASKS, message], generate=False)
        if not whole.startswith(prompt):
            raise UserError(
                f"the chat template of this model ends its prompt with {prompt[-40:]!r} but does not begin this reply "
                "with it: add the missing part to the message (such as thoughts), or give the tokenizer another "
                "template"
            )
        end = self._end_after_calls if message.get("tool_calls") else self._end
        reply = whole[len(prompt) : None if end.begins_next else whole.rindex(end.text)]
        parts = [call["function"]["name"] for call in message.get("tool_calls", ())]
        for part in (message.get("reasoning_content", "").strip(), *parts):
            if self.control_tokens.disarm(part) not in reply:
                raise UserError(
                    f"the chat template of this model omits {part[:40]!r} from a reply (not every template supports "
                    "reasoning_content and tool_calls): write it into the content, or remove it"
                )
        return [*self.control_tokens.encode(reply), end.token_id]

    def encode_delta(self, messages: Sequence[ChatMessage], *, closed: bool) -> list[int]:
        """Return the ids that follow a sampled assistant turn: its end if it was not sampled (``closed`` false), what
        the template puts around ``messages``, and the generation prompt."""
        end = self._end_before(messages)
        text = self._text_after_reply(messages, generate=True)
        begin = text.find(end.text)
        if begin < 0:  # in the middle of a conversation gpt-oss' replies end differently
            begin = text.index(self.control_tokens.find(text))
        ids = self.control_tokens.encode(text[begin:])
        return ids[1:] if closed else ids

    def encode_next(self, last_id: int, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the ids that follow a reply whose last one is ``last_id``, which may be its end."""
        ids = self.encode_delta(messages, closed=False)
        is_end = last_id == ids[0] or (last_id in self.stop_ids and not self._end_before(messages).begins_next)
        return ids[1:] if is_end else ids

    def _end_before(self, messages: Sequence[ChatMessage]) -> TurnEnd:
        return self._end_after_calls if any(message["role"] == "tool" for message in messages) else self._end

    def decode_reply(self, token_ids: Sequence[int]) -> str:
        """Return the text of sampled ids, without the end of the turn or of the text."""
        ids = token_ids[:-1] if token_ids and token_ids[-1] in self._ends else token_ids
        return self.tokenizer.decode(ids, skip_special_tokens=False)
