"""Scripted demonstrations for the warm start of the demo model.

Three phases.  *Copy*: a random string of names and arguments, twice, with loss on the repetition; a small model that
skips this does not learn to copy names into commands.  *Clean*: correct commands.  *Noisy*: a share of the commands is
corrupted like a careless model's (wrong flag or command, another name or argument, broken JSON), so that the warm model
is right about half the time and rewards have something to teach.

Token ids are exactly those of episodes, by the same chat format.  Held-out names do not occur.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from actors.agents.agent import render_opening
from actors.agents.prompt import PromptTemplate
from actors.agents.registry import make_agent
from actors.tokens.chat_format import ChatFormat, load_chat_format
from launch.config import RunConfig
from launch.settings.data import WarmStartSettings
from learner.messages import SftBatch
from protocol.trajectory import Int32Array, Uint8Array
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES, HELD_OUT_FAMILY
from sandbox.tasks.formats.generated.generator import training_families
from sandbox.tasks.formats.generated.vocabulary import EXTENSIONS, MODES, DraftChoices, draw_choices, names_of
from sandbox.tasks.task import Task

DemonstrationTokens = tuple[Int32Array, Uint8Array]
"""Token ids [T] and loss mask [T]."""

NO_OUTPUT = "(no output)"
"""Result of the shell tool for a command without output."""
_OUTPUTS = (
    "{word}",
    "{word} {word}\n{word} {word}",
    "Exit code: 1",
    "cp: cannot stat '{word}.txt': No such file or directory\nExit code: 1",
    "sort: cannot read: {word}.txt: No such file or directory\nExit code: 2",
    "head: cannot open '{word}.log' for reading: No such file or directory\nExit code: 1",
    "chmod: missing operand after '{word}.sh'\nTry 'chmod --help' for more information.\nExit code: 1",
    "grep: {word}: No such file or directory\nExit code: 2",
    "Error: the tool call is not valid JSON: unexpected end of data: line 1 column 71 (char 70)",
)
"""Other results of the shell tool; the demo's agent ends the episode after any of them."""
_INSTRUCTION = "\u2063instruction\u2063"
_OUTPUT = "\u2063output\u2063"


def format_tool_call(command: str) -> str:
    """Return the assistant's message that runs ``command``."""
    call = {"name": "shell_exec", "arguments": {"command": command}}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One scripted episode."""

    instruction: str
    reply: str
    """The assistant's first message."""
    output: str = NO_OUTPUT


def make_demonstration(family: str, rng: random.Random, noise: float) -> Demonstration:
    """Return a training instance with its command, which is corrupted with probability ``noise``."""
    choices = draw_choices(rng, TaskSplit.TRAIN)
    made = FAMILIES[family](choices)
    output = rng.choice((NO_OUTPUT, rng.choice(_OUTPUTS).format(word=rng.choice(choices.filler))))
    if rng.random() >= noise:
        return Demonstration(made.instruction, format_tool_call(made.command), output)
    kind = rng.choices(("command", "name", "argument", "json"), (5, 3, 1, 1))[0]
    if kind == "json":
        return Demonstration(made.instruction, format_tool_call(made.command).replace('"}}', '"}'), output)
    command = made.command
    if kind != "command":
        command = FAMILIES[family](_vary(choices, made.command, kind, rng)).command
    if command == made.command:
        command = rng.choice(made.mistakes)
    return Demonstration(made.instruction, format_tool_call(command), output)


def _vary(choices: DraftChoices, command: str, kind: str, rng: random.Random) -> DraftChoices:
    """Return the choices with another name or another argument than ``command`` uses."""
    if kind == "argument":
        return replace(
            choices,
            instruction_lines=2 + (choices.instruction_lines - 1) % 5,
            column=1 + choices.column % 3,
            extension=rng.choice([e for e in EXTENSIONS if e != choices.extension]),
            mode=rng.choice([m for m in MODES if m != choices.mode]),
        )
    names = list(choices.names)
    used = rng.choice([n for n, name in enumerate(names) if name in command])
    other = rng.choice([n for n, name in enumerate(names) if name not in command])
    names[used], names[other] = names[other], names[used]
    return replace(choices, names=tuple(names))


class DemonstrationEncoder:
    """Encodes demonstrations as the token ids that episodes would have."""

    def __init__(self, chat: ChatFormat, *, system_prompt: str, done_text: str) -> None:
        self._chat = chat
        self._first = chat.decode_reply(
            chat.encode_first_prompt(render_opening(PromptTemplate(system_prompt), Task("", _INSTRUCTION), {}))
        )
        self._delta = chat.decode_reply(chat.encode_delta([{"role": "tool", "content": _OUTPUT}], closed=True))
        self._done = [*self._encode(done_text), chat.turn_end_id]

    def _encode(self, text: str) -> list[int]:
        return self._chat.tokenizer.encode(text, add_special_tokens=False)

    def encode(self, demonstration: Demonstration, *, final_turn: bool) -> DemonstrationTokens:
        """Return token ids with loss on the assistant's messages; ``final_turn`` adds the one that says "done"."""
        prompt = self._encode(self._first.replace(_INSTRUCTION, demonstration.instruction))
        reply = [*self._encode(demonstration.reply), self._chat.turn_end_id]
        parts = [(prompt, 0), (reply, 1)]
        if final_turn:
            parts += [(self._encode(self._delta.replace(_OUTPUT, demonstration.output)), 0), (self._done, 1)]
        return _arrays(parts)

    def alphabet(self) -> list[list[int]]:
        """Return the parts of copy strings: names with and without a leading space, and arguments."""
        names = [text for group in names_of(TaskSplit.TRAIN) for name in group for text in (name, f" {name}")]
        numbers = [text for n in range(1, 7) for text in (str(n), f" {n}")]
        arguments = [*numbers, *(f".{extension}" for extension in EXTENSIONS), *(f" {mode}" for mode in MODES)]
        return [self._encode(text) for text in (*names, *arguments * 150)]


def _arrays(parts: Sequence[tuple[list[int], int]]) -> DemonstrationTokens:
    ids = [token for part, _ in parts for token in part]
    mask = [loss for part, loss in parts for _ in part]
    return np.asarray(ids, np.int32), np.asarray(mask, np.uint8)


def make_copy_string(alphabet: Sequence[list[int]], rng: random.Random) -> DemonstrationTokens:
    """Return up to 4 texts, then 4 to 13 texts twice, with loss where the repetition is determined."""
    before = [token for text in rng.choices(alphabet, k=rng.randint(0, 4)) for token in text]
    string = [token for text in rng.choices(alphabet, k=rng.randint(4, 13)) for token in text]
    return _arrays([([*before, *string, string[0]], 0), (string[1:], 1)])


def warm_start_learning_rate(step: int, settings: WarmStartSettings, steps: int) -> float:
    """Return the learning rate of ``step`` (from 0) of ``steps``: linear warm-up, then a cosine to 1/20 of the peak."""
    warm = min(1.0, (step + 1) / max(settings.warmup_steps, 1))
    return settings.lr * warm * (0.05 + 0.475 * (1 + math.cos(math.pi * step / steps)))


def noise_by_family(families: Sequence[str], settings: WarmStartSettings, seed: int) -> dict[str, float]:
    """Return family → share of its demonstrations that the noisy phase corrupts.

    Shares average ``noise`` and are spread evenly over ± ``noise_spread`` in an order drawn by ``seed``, so that some
    families start hard and others nearly solved."""
    order = random.Random(f"noise {seed}").sample(families, len(families))
    last = max(1, len(order) - 1)
    return {family: settings.noise + settings.noise_spread * (2 * rank / last - 1) for rank, family in enumerate(order)}


def warm_start_curriculum(
    encoder: DemonstrationEncoder, settings: WarmStartSettings, seed: int, *, held_out_family: str = HELD_OUT_FAMILY
) -> Iterator[SftBatch]:
    """Yield the batches of the warm start; families alternate, so each is equally frequent in a batch."""
    rng = random.Random(f"warm start {seed}")
    families, alphabet = training_families(held_out_family), encoder.alphabet()
    noise = noise_by_family(families, settings, seed)
    for step in range(settings.steps):
        lr, position = warm_start_learning_rate(step, settings, settings.steps), step - settings.copy_steps
        if position < 0:
            yield SftBatch([make_copy_string(alphabet, rng) for _ in range(settings.copy_batch_size)], lr)
            continue
        noisy = position >= settings.clean_steps
        first = position * settings.batch_size
        final_turn = position % settings.final_turn_every == settings.final_turn_every - 1
        batch_families = (families[n % len(families)] for n in range(first, first + settings.batch_size))
        batch = [
            encoder.encode(make_demonstration(family, rng, noise[family] if noisy else 0.0), final_turn=final_turn)
            for family in batch_families
        ]
        yield SftBatch(batch, lr)


def warm_start_batches(config: RunConfig, model_path: Path) -> Iterator[SftBatch]:
    """Yield the warm-start batches of a run with the tokenizer in ``model_path``."""
    agent = config.agent.make_spec()
    chat = load_chat_format(
        str(model_path), make_agent(agent).offered_tools, thinking=agent.settings.thinking.template_argument
    )
    encoder = DemonstrationEncoder(chat, system_prompt=config.agent.system_prompt, done_text=config.agent.done_text)
    return warm_start_curriculum(
        encoder, config.warm_start, config.run.seed, held_out_family=config.data.held_out_family
    )
