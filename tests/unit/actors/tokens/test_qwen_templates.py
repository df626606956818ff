"""Episodes of many turns with the chat templates of Qwen3 and Qwen3-2507, thinking or not.

If these fail, a model reads at some turn another history than the one that it made, or sees calls in another form than
it was taught.  The templates are data: tests/support/templates, and NOTICE says whose.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from actors.agents.registry import make_agent
from actors.agents.settings import AgentKind, HistoryMode, ThinkingMode
from actors.engines.messages import GenerateReply, GenerateRequest
from actors.rollout.episode import run_agent_episode
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeGrade, ToolCallResult
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.chat_template import Tokenizer
from launch.config.tables import AgentTable
from launch.data.demo.tokenizer import train_tokenizer
from learner.data.sequences import join_sequences
from protocol.errors import UserError
from protocol.trajectory import EpisodeStatus, TurnKind
from sandbox.tasks.task import Task
from tests.support.actors.episodes import episode_context
from tests.support.fakes.fake_policy import make_reply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FOLDER = Path(__file__).parents[3] / "support" / "templates"
TURNS = 30
THOUGHT = re.compile(r"<think>\n.*?\n</think>\n\n", re.DOTALL)
OPENS = (
    "'<|im_start|>assistant\\n' }}\n    {%- if enable_thinking",
    "'<|im_start|>assistant\\n<think>\\n' }}\n    {%- if enable_thinking",
)
TASK = Task(id="t", instruction="Count to thirty.")


@pytest.fixture(scope="module")
def bare() -> Tokenizer:
    """Has Qwen's special tokens."""
    return cast("Tokenizer", train_tokenizer(1024))


def qwen(bare: Tokenizer, name: str) -> Tokenizer:
    """With the template of Qwen3, or of Qwen3-2507's instruct models; ``opening`` is Qwen3's, changed here to open
    each reply's thoughts in the prompt, as that of Qwen3-2507's thinking models is documented to do."""
    made = copy.deepcopy(cast("PreTrainedTokenizerFast", bare))
    if name == "opening":
        before, after = OPENS
        template = (FOLDER / "qwen3.jinja").read_text()
        assert before in template
        made.chat_template = template.replace(before, after)
    else:
        made.chat_template = (FOLDER / f"{name}.jinja").read_text()
    return cast("Tokenizer", made)


@dataclass
class FakeModel:
    """Thinks, or does not, and makes as many calls a turn as its number says, up to three; then it is done."""

    tokenizer: Tokenizer
    chat: ChatFormat
    say: Callable[[int], str]
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    sampled: list[list[int]] = field(default_factory=list[list[int]])

    async def generate(self, request: GenerateRequest) -> GenerateReply:
        turn = len(self.prompts)
        self.prompts.append(request.input_ids)
        ids = [*self.tokenizer.encode(self.say(turn), add_special_tokens=False), self.chat.turn_end_id]
        self.sampled.append(ids)
        return replace(make_reply(ids, 1), finish="stop")


@dataclass
class NumberingTerminal:
    calls: int = 0

    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolCallResult:
        self.calls += 1
        return ToolCallResult(f"output {self.calls} of {name}", "", 0, 1.0)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        return EpisodeGrade((), 0.0, False, 0.0)


def hermes(turn: int) -> str:
    calls = [{"name": "shell_exec", "arguments": {"command": f"echo {turn} {n}"}} for n in range(1 + turn % 3)]
    written = (f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return "\n".join(["Next.", *written]) if turn < TURNS - 1 else "done"


def bash(turn: int) -> str:
    return f"THOUGHT: next.\n```bash\necho {turn}\n```"


THINKS = "<think>\nTurn {}: I count.\n</think>\n\n"
EMPTY = "<think>\n\n</think>\n\n"
CASES = {
    "qwen3": ("qwen3", ThinkingMode.TEMPLATE, THINKS, TURNS - 1),
    "qwen3, on": ("qwen3", ThinkingMode.ON, THINKS, TURNS - 1),
    "qwen3, off": ("qwen3", ThinkingMode.OFF, "", TURNS),
    "qwen3, /no_think": ("qwen3", ThinkingMode.NO_THINK, EMPTY, TURNS - 1),
    "2507, instruct": ("qwen3_instruct_2507", ThinkingMode.TEMPLATE, "", 0),
    "2507, thinking": ("opening", ThinkingMode.TEMPLATE, THINKS.removeprefix("<think>\n"), TURNS - 1),
}
"""Template, how it is told, how replies begin, and how many thoughts the last prompt has."""


@pytest.mark.parametrize("kind", [AgentKind.HERMES, AgentKind.BASH])
@pytest.mark.parametrize(("template", "thinking", "thought", "thoughts"), CASES.values(), ids=CASES)
async def test_each_of_thirty_turns_extends_all_previous_tokens(
    bare: Tokenizer, template: str, thinking: ThinkingMode, thought: str, thoughts: int, kind: AgentKind
) -> None:
    settings = AgentTable(kind=kind, thinking=thinking).make_spec()
    tokenizer, agent = qwen(bare, template), make_agent(settings)
    schemas = [tool.schema for tool in agent.offered_tools.values()]
    chat = ChatFormat(tokenizer, tools=schemas or None, thinking=thinking.template_argument)
    say = hermes if kind is AgentKind.HERMES else bash
    model, terminal = FakeModel(tokenizer, chat, lambda turn: thought.format(turn) + say(turn)), NumberingTerminal()
    context = episode_context(
        EpisodeSettings(
            max_turns=TURNS,
            max_malformed=2,
            max_new_tokens=4000,
            context_tokens=60_000,
            temperature=1.0,
            nominal_tokens_per_s=1e9,
            time_limit_s=60.0,
        ),
        TASK,
    )
    trajectory = await run_agent_episode(context, agent, chat, model.generate, terminal)
    assert trajectory.status is (EpisodeStatus.COMPLETED if kind is AgentKind.HERMES else EpisodeStatus.TURN_LIMIT)

    (segment,) = trajectory.segments
    for prompt, sampled, following in zip(model.prompts, model.sampled, model.prompts[1:], strict=False):
        assert following[: len(prompt) + len(sampled)] == [*prompt, *sampled]
    assert segment.token_ids[: len(model.prompts[-1])].tolist() == model.prompts[-1]
    assert segment.token_ids[segment.loss_mask == 1].tolist() == [token for ids in model.sampled for token in ids]
    assert len([turn for turn in segment.turns if turn.kind is TurnKind.MODEL]) == TURNS
    assert terminal.calls == (sum(1 + turn % 3 for turn in range(TURNS - 1)) if kind is AgentKind.HERMES else TURNS)

    messages = conversation(
        agent.opening_messages(TASK), lambda turn: chat.reply_prefix + thought.format(turn) + say(turn), kind
    )
    rendered = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, tools=schemas or None,
        **({} if thinking.template_argument is None else {"enable_thinking": thinking.template_argument}),
    )  # fmt: skip
    kept = tokenizer.decode(model.prompts[-1], skip_special_tokens=False)
    assert THOUGHT.sub("", kept) == THOUGHT.sub("", rendered), "beside thoughts the template would say something else"
    assert len(THOUGHT.findall(kept)) == thoughts, "a thought that the model had is gone"
    if not thoughts:
        assert model.prompts[-1] == tokenizer.encode(rendered, add_special_tokens=False)


async def test_a_rerendered_history_follows_the_template_and_trains_thoughts_that_it_drops(
    bare: Tokenizer,
) -> None:
    """Qwen3's template drops the thoughts of turns before a user's message: each is trained where it was sampled."""
    tokenizer, agent = qwen(bare, "qwen3"), make_agent(AgentTable(kind=AgentKind.BASH).make_spec())
    chat = ChatFormat(tokenizer)
    model = FakeModel(tokenizer, chat, lambda turn: THINKS.format(turn) + bash(turn))
    context = episode_context(
        EpisodeSettings(
            max_turns=TURNS,
            max_malformed=2,
            max_new_tokens=4000,
            context_tokens=60_000,
            temperature=1.0,
            nominal_tokens_per_s=1e9,
            time_limit_s=60.0,
            history=HistoryMode.INDIVIDUAL,
        ),
        TASK,
    )
    trajectory = await run_agent_episode(context, agent, chat, model.generate, NumberingTerminal())
    messages = conversation(agent.opening_messages(TASK), lambda turn: THINKS.format(turn) + bash(turn), AgentKind.BASH)
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, tools=None)
    assert model.prompts[-1] == tokenizer.encode(rendered, add_special_tokens=False)
    assert not THOUGHT.search(rendered)
    sequences = [(ids.tolist(), ids[mask == 1].tolist()) for ids, mask in join_sequences(trajectory.segments)]
    assert [loss for _, loss in sequences] == model.sampled
    for (ids, loss), prompt in zip(sequences, model.prompts, strict=True):
        assert ids == [*prompt, *loss]


def conversation(opening: list[ChatMessage], say: Callable[[int], str], kind: AgentKind) -> list[ChatMessage]:
    """The messages that the last prompt stands for."""
    messages, calls = [*opening], 0
    for turn in range(TURNS - 1):
        messages.append({"role": "assistant", "content": say(turn)})
        for _ in range(1 + turn % 3 if kind is AgentKind.HERMES else 1):
            calls += 1
            text = f"output {calls} of shell_exec"
            observation = (
                text if kind is AgentKind.HERMES else f"<returncode>0</returncode>\n<output>\n{text}\n</output>"
            )
            messages.append({"role": "tool" if kind is AgentKind.HERMES else "user", "content": observation})
    return messages


@pytest.mark.parametrize(("thinking", "ends"), [(None, ""), (True, ""), (False, EMPTY)])
def test_disabled_thinking_puts_an_empty_thought_in_every_prompt(
    bare: Tokenizer, thinking: bool | None, ends: str
) -> None:
    chat = ChatFormat(qwen(bare, "qwen3"), thinking=thinking)
    prompt = chat.decode_reply(chat.encode_first_prompt([{"role": "user", "content": "q"}]))
    assert prompt.endswith(f"<|im_start|>assistant\n{ends}")
    delta = chat.decode_reply(chat.encode_delta([{"role": "tool", "content": "a"}], closed=True))
    assert delta.endswith(f"</tool_response><|im_end|>\n<|im_start|>assistant\n{ends}")


def test_a_thinking_setting_is_refused_for_a_template_without_thinking(bare: Tokenizer) -> None:
    """Otherwise a run's thinking setting would be ignored without notice."""
    with pytest.raises(UserError, match=r"leave agent\.thinking out"):
        ChatFormat(qwen(bare, "qwen3_instruct_2507"), thinking=False)


def test_no_think_is_the_last_line_of_the_system_message() -> None:
    """SETA's place for it."""
    first, *_ = make_agent(AgentTable(thinking=ThinkingMode.NO_THINK).make_spec()).opening_messages(TASK)
    assert first == {"role": "system", "content": "Use the shell.\n/no_think"}
    only, _ = make_agent(
        AgentTable(kind="code_interpreter", thinking=ThinkingMode.NO_THINK).make_spec()
    ).opening_messages(TASK)
    assert only == {"role": "system", "content": "/no_think"}


def test_calls_in_a_thought_opened_by_the_prompt_are_not_run(bare: Tokenizer) -> None:
    chat = ChatFormat(qwen(bare, "opening"))
    assert chat.reply_prefix == "<think>\n"
    agent = make_agent(AgentTable().make_spec())
    reading = agent.parse_reply(f"{chat.reply_prefix}maybe {hermes(2)}\n</think>\n\n{hermes(0)}")
    assert len(reading.actions) == 1
    assert ChatFormat(qwen(bare, "qwen3")).reply_prefix == ""
