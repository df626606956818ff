"""The demo model's tokenizer: byte-level BPE with Qwen's special tokens and a chat template of Qwen3's form.

It is trained on demand from generated tasks, in about a second and deterministically.  Words that a command copies from
its instruction are single tokens in both places.  The template is append-only: the text of n messages is a prefix of
the text of n + 1, thinking included, whereas Qwen3's own drops earlier thinking.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.errors import UserError
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.generator import draft_task, training_families
from sandbox.tasks.formats.generated.vocabulary import EXTENSIONS, MODES, WORDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Tokens that text never contains; in order, ids 0, 1, 2."""
MARKS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"
)  # fmt: skip
"""Single tokens that decoding keeps, as in Qwen3."""
PAD, END_OF_TURN = CONTROL[0], CONTROL[2]

_MULTIPLE = 64
"""The vocabulary is padded to a multiple of this, so that it divides among tensor-parallel ranks."""

_PIECES = r""" ?-?\p{L}[\p{L}_]*|\.\p{L}+| ?\p{N}+|["{}:,]+(?: ["{}:,]+)?| ?[^\s\p{L}\p{N}.]+|\.|\s"""
"""Pieces that BPE never merges: words and flags, extensions with their dot, punctuation between JSON strings."""

CHAT_TEMPLATE = """\
{%- if messages[0].role == 'system' -%}
    {%- set system = messages[0].content -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system = '' -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- if tools -%}
    {{- '<|im_start|>system\\n' -}}
    {%- if system -%}{{- system + '\\n\\n' -}}{%- endif -%}
    {{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' -}}
    {{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -}}
    {%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
    {{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within ' -}}
    {{- '<tool_call></tool_call> XML tags:\\n<tool_call>\\n' -}}
    {{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' -}}
{%- elif system -%}
    {{- '<|im_start|>system\\n' + system + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in rest -%}
    {%- set content = message.content or '' -%}
    {%- if message.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' -}}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\\n' + content -}}
        {%- for call in message.tool_calls or [] -%}
            {%- set function = call.function or call -%}
            {%- if content or not loop.first -%}{{- '\\n' -}}{%- endif -%}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' -}}
            {%- if function.arguments is string -%}
                {{- function.arguments -}}
            {%- else -%}
                {{- function.arguments | tojson -}}
            {%- endif -%}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def tokenizer_corpus() -> Iterator[str]:
    """Yield the text that the vocabulary is trained on."""
    for family in training_families():
        for seed in range(60):
            made = draft_task(family, seed, TaskSplit.TRAIN)
            yield made.instruction
            yield f'{{"name": "shell_exec", "arguments": {{"command": "{made.command}"}}}}'
    for word in (*WORDS, *MODES, *(str(n) for n in range(10))):
        yield f"{word}\n {word}\n" * 100
    yield "".join(f"x-{word}\n" for word in WORDS) * 100
    yield "".join(f".{extension}\n" for extension in (*EXTENSIONS, "sh", "out", "json", "tar")) * 100
    yield "system\nuser\nassistant\nYou are a shell agent.\nUse the shell.\ndone\n(no output)\nExit code: 1\n" * 1000
    yield "Error: the tool call is not valid JSON: unexpected end of data: line 1 column (char )\n" * 100
    yield "cannot stat: No such file or directory cannot open for reading missing operand after Try --help\n" * 100


def train_tokenizer(max_tokens: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer.  ``len(tokenizer)`` is a multiple of 64 and at most ``max_tokens``, padded with reserved
    tokens.  Raises UserError if ``max_tokens`` is too small for the words to be single tokens."""
    from launch.data.demo.hugging_face import build_fast_tokenizer, train_bpe

    texts = list(tokenizer_corpus())
    random.Random(0).shuffle(texts)
    room = max_tokens - max_tokens % _MULTIPLE - len(MARKS)
    bpe = train_bpe(texts, pieces=_PIECES, control=CONTROL, marks=MARKS, max_tokens=room)
    size = bpe.get_vocab_size()
    filler = [f"<|reserved_{n}|>" for n in range(-size % _MULTIPLE)]
    for word in WORDS:
        if any(len(bpe.encode(text).ids) != 1 for text in (word, f" {word}", f"-{word}")):
            raise UserError(f"{max_tokens} tokens are too few for {word!r} to be one: set model.vocab_tokens = 1024")
    return build_fast_tokenizer(bpe, filler, template=CHAT_TEMPLATE, eos=END_OF_TURN, pad=PAD)
