"""The demo's tokens: template, warm start and episodes agree to the last id, or the policy learns another language."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path

import pytest

from actors.agents.hermes import AgentToolCall, FinalReply, MalformedAction, parse_tool_calls
from actors.tokens.chat_format import ChatFormat, load_chat_format, load_tokenizer
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.chat_template import Tokenizer
from launch.config import load_recipe
from launch.data.demo.demonstrations import (
    NO_OUTPUT,
    Demonstration,
    DemonstrationEncoder,
    format_tool_call,
    make_copy_string,
    make_demonstration,
    noise_by_family,
    warm_start_batches,
    warm_start_curriculum,
    warm_start_learning_rate,
)
from launch.data.demo.model import build_demo_model
from launch.data.demo.tokenizer import tokenizer_corpus
from launch.settings.data import ModelSettings, WarmStartSettings
from protocol.errors import UserError
from sandbox.tasks.dataset_split import TaskSplit
from sandbox.tasks.formats.generated.families import FAMILIES, HELD_OUT_FAMILY
from sandbox.tasks.formats.generated.generator import held_out_tasks, training_families, training_tasks
from sandbox.tasks.formats.generated.vocabulary import EXTENSIONS, MODES, WORDS, draw_choices, names_of
from sandbox.tools import SHELL_ONLY
from tests.support.tasks.task_files import solution_command

SYSTEM = "You are a shell agent."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "model"
    build_demo_model(path, ModelSettings(), seed=0)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(str(folder))


@pytest.fixture(scope="module")
def encoder(tokenizer: Tokenizer) -> DemonstrationEncoder:
    return DemonstrationEncoder(ChatFormat(tokenizer), system_prompt=SYSTEM, done_text="done")


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def called(name: str, **arguments: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "Count."},
    {"role": "assistant", "content": "", "tool_calls": [called("shell_exec", command="awk -F'\"' '{print $1}' é")]},
    {"role": "tool", "content": "3"},
    {"role": "tool", "content": "4"},
    {
        "role": "assistant",
        "content": "<think>\nhm\n</think>\n\nI look.",
        "tool_calls": [called("a"), called("b", x="1")],
    },
    {"role": "tool", "content": NO_OUTPUT},
    {"role": "assistant", "content": "done"},
]
RENDERED = """<|im_start|>system
You are a shell agent.<|im_end|>
<|im_start|>user
Count.<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "shell_exec", "arguments": {"command": "awk -F'\\"' '{print $1}' é"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
3
</tool_response>
<tool_response>
4
</tool_response><|im_end|>
<|im_start|>assistant
<think>
hm
</think>

I look.
<tool_call>
{"name": "a", "arguments": {}}
</tool_call>
<tool_call>
{"name": "b", "arguments": {"x": "1"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
(no output)
</tool_response><|im_end|>
<|im_start|>assistant
done<|im_end|>
"""


def render(tokenizer: Tokenizer, messages: list[dict[str, object]], *, generate: bool = False, tools=None) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate, tools=tools)


def test_the_template_renders_as_qwen3_does(tokenizer: Tokenizer):
    assert render(tokenizer, CONVERSATION) == RENDERED


def test_tools_are_offered_in_the_system_message(tokenizer: Tokenizer):
    tool = {"type": "function", "function": {"name": "shell_exec", "parameters": {"type": "object"}}}
    expected = (
        "<|im_start|>system\nYou are a shell agent.\n\n# Tools\n\nYou may call one or more functions to assist with "
        "the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        f"{json.dumps(tool)}\n</tools>\n\nFor each function call, return a json object with function name and "
        'arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
        "<args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(tokenizer, CONVERSATION[:2], generate=True, tools=[tool]) == expected
    assert render(tokenizer, CONVERSATION[1:2], generate=True, tools=[tool]) == expected.replace(f"{SYSTEM}\n\n", "")


def test_each_turn_only_appends_to_the_rendered_text(tokenizer: Tokenizer):
    turns = [n for n, message in enumerate(CONVERSATION) if message["role"] == "assistant"]
    for n in turns:
        prompt = render(tokenizer, CONVERSATION[:n], generate=True)
        whole = render(tokenizer, CONVERSATION[: n + 1])
        assert whole.startswith(prompt)
        assert RENDERED.startswith(whole)
        assert ids(tokenizer, whole)[: len(ids(tokenizer, prompt))] == ids(tokenizer, prompt)


def test_a_demonstration_has_the_ids_of_the_episode_that_it_shows(tokenizer: Tokenizer, encoder: DemonstrationEncoder):
    chat = ChatFormat(tokenizer)
    for task in held_out_tasks(0, 1):
        reply = format_tool_call(solution_command(task))
        for output in (NO_OUTPUT, "sort: no such file\nExit code: 2"):
            messages: list[ChatMessage] = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": task.instruction},
            ]
            prompt, sampled = chat.encode_first_prompt(messages), [*ids(tokenizer, reply), chat.turn_end_id]
            delta = chat.encode_delta([{"role": "tool", "content": output}], closed=True)
            done = [*ids(tokenizer, "done"), chat.turn_end_id]
            demonstration = Demonstration(task.instruction, reply, output)
            token_ids, mask = encoder.encode(demonstration, final_turn=True)
            assert token_ids.tolist() == [*prompt, *sampled, *delta, *done]
            assert mask.tolist() == [0] * len(prompt) + [1] * len(sampled) + [0] * len(delta) + [1] * len(done)
            first, _ = encoder.encode(demonstration, final_turn=False)
            assert first.tolist() == [*prompt, *sampled]
            assert parse_tool_calls(chat.decode_reply(sampled)) == [
                AgentToolCall("shell_exec", {"command": solution_command(task)})
            ]
            assert parse_tool_calls(chat.decode_reply(done)) == FinalReply("done")


@pytest.mark.parametrize("tools", [True, False])
def test_the_warm_start_shows_the_prompts_that_episodes_begin_with(folder: Path, tools: bool):
    config = load_recipe("demo", ["warm_start.copy_steps=0", f"agent.tools={str(tools).lower()}"])
    batch = next(warm_start_batches(config, folder))
    chat = load_chat_format(str(folder), SHELL_ONLY if tools else {})
    opening = chat.encode_first_prompt([{"role": "system", "content": config.agent.system_prompt}])
    opening = opening[: opening.index(chat.turn_end_id) + 1]
    assert all(token_ids[: len(opening)].tolist() == opening for token_ids, _ in batch.sequences)
    assert ("<tools>" in chat.decode_reply(opening)) is tools
    assert not load_recipe("demo").agent.tools


def test_every_text_survives_its_encoding(tokenizer: Tokenizer):
    strange = [
        "",
        "é ü 漢字 🦀",
        "\t\r\n\x00\x7f",
        " a  b   c",
        "<tool_call",
        "don't",
        '{"a": ["b", 1.5e-3]}',
        "\u2063",
    ]
    for text in (*strange, *(task.instruction + task.solution for task in training_tasks(0, 300))):
        assert tokenizer.decode(ids(tokenizer, text), skip_special_tokens=False) == text


def test_words_that_a_command_copies_are_single_tokens_in_every_position(tokenizer: Tokenizer):
    single = [*WORDS, *(f" {word}" for word in WORDS), *(f"-{word}" for word in WORDS), *(f" {mode}" for mode in MODES)]
    single += [f".{extension}" for extension in EXTENSIONS]
    single += ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
    assert [text for text in single if len(ids(tokenizer, text)) != 1] == []


def test_the_vocabulary_of_the_model_is_exactly_that_of_the_tokenizer(folder: Path, tokenizer: Tokenizer):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer) == model.get_input_embeddings().weight.shape[0]
    assert len(tokenizer) % 64 == 0
    assert len(tokenizer) <= ModelSettings().vocab_tokens
    assert tokenizer.eos_token_id == model.config.eos_token_id == model.generation_config.eos_token_id == 2
    assert tokenizer.decode([2], skip_special_tokens=False) == "<|im_end|>"
    assert all(tokenizer.decode([n], skip_special_tokens=False) for n in range(len(tokenizer)))


def test_the_same_seed_gives_the_same_model(folder: Path, tmp_path: Path):
    build_demo_model(tmp_path / "again", ModelSettings(), seed=0)
    build_demo_model(tmp_path / "other", ModelSettings(), seed=1)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "other/model.safetensors").read_bytes() != (folder / "model.safetensors").read_bytes()


def test_too_small_a_vocabulary_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="too few"):
        build_demo_model(tmp_path / "small", ModelSettings(vocab_tokens=320), seed=0)


SHORT = WarmStartSettings(copy_steps=2, clean_steps=9, noisy_steps=3, batch_size=18, copy_batch_size=4, warmup_steps=2)


def test_the_curriculum_has_copy_strings_then_clean_then_noisy_demonstrations(
    encoder: DemonstrationEncoder, tokenizer: Tokenizer
):
    batches = list(warm_start_curriculum(encoder, SHORT, seed=0))
    assert [len(batch.sequences) for batch in batches] == [4, 4, *[18] * 12]
    assert [batch.lr for batch in batches] == [
        warm_start_learning_rate(step, SHORT, SHORT.steps) for step in range(SHORT.steps)
    ]
    assert max(batch.lr for batch in batches) <= SHORT.lr
    ends = [ids(tokenizer, "done") == batch.sequences[0][0][-2:-1].tolist() for batch in batches]
    assert [step for step, end in enumerate(ends) if end] == [9]
    again = list(warm_start_curriculum(encoder, SHORT, seed=0))
    other = list(warm_start_curriculum(encoder, SHORT, seed=1))
    for batch, same, different in zip(batches, again, other, strict=True):
        pairs = list(zip(batch.sequences, same.sequences, strict=True))
        assert all((a[0] == b[0]).all() and (a[1] == b[1]).all() for a, b in pairs)
        assert [a[0].tolist() for a in batch.sequences] != [b[0].tolist() for b in different.sequences]


def test_noise_is_spread_evenly_over_families_around_its_average_in_an_order_of_the_seed():
    families = [f"family {n}" for n in range(5)]
    settings = SHORT.model_copy(update={"noise": 0.5, "noise_spread": 0.2})
    noise = noise_by_family(families, settings, seed=0)
    assert sorted(noise.values()) == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7])
    assert noise_by_family(families, settings, seed=0) == noise
    assert any(noise_by_family(families, settings, seed) != noise for seed in range(1, 4))
    assert set(noise_by_family(families, SHORT, seed=0).values()) == {SHORT.noise}
    assert noise_by_family(["alone"], SHORT, seed=0) == {"alone": SHORT.noise}


def test_clean_demonstrations_have_no_noise_and_the_others_that_of_their_family(
    encoder: DemonstrationEncoder, monkeypatch: pytest.MonkeyPatch
):
    calls: list[tuple[str, float]] = []

    def recording(family: str, rng: random.Random, noise: float) -> Demonstration:
        calls.append((family, noise))
        return make_demonstration(family, rng, noise)

    monkeypatch.setattr("launch.data.demo.demonstrations.make_demonstration", recording)
    settings = SHORT.model_copy(update={"noise": 0.5, "noise_spread": 0.3})
    list(warm_start_curriculum(encoder, settings, seed=0))
    clean = settings.clean_steps * settings.batch_size
    assert {noise for _, noise in calls[:clean]} == {0.0}
    assert set(calls[clean:]) == set(noise_by_family(training_families(), settings, seed=0).items())


@pytest.mark.parametrize(
    ("held_out_family", "says"), [(HELD_OUT_FAMILY, "Append the first"), ("sort", r"Sort the lines of \S+ and")]
)
def test_the_warm_start_never_shows_a_held_out_name_or_family(
    encoder: DemonstrationEncoder, tokenizer: Tokenizer, held_out_family: str, says: str
):
    batches = warm_start_curriculum(encoder, SHORT, 0, held_out_family=held_out_family)
    shown = [token_ids for batch in batches for token_ids, _ in batch.sequences]
    text = "\n".join(tokenizer.decode(token_ids.tolist(), skip_special_tokens=False) for token_ids in shown)
    assert not [name for name in itertools.chain(*names_of(TaskSplit.HELD_OUT)) if name in text]
    assert not re.search(says, text)
    assert "Rename the file" in text


def test_the_tokenizer_is_made_without_held_out_names_and_family():
    texts = "\n".join(tokenizer_corpus())
    assert not [name for name in itertools.chain(*names_of(TaskSplit.HELD_OUT)) if name in texts]
    assert "Append the first" not in texts


def test_a_file_name_is_two_tokens_with_and_without_a_leading_space(tokenizer: Tokenizer):
    for split in TaskSplit:
        for name in itertools.chain(*names_of(split)):
            for text in (name, f" {name}"):
                assert len(ids(tokenizer, text)) == 2, text


def test_noise_spoils_its_share_of_demonstrations_and_without_noise_none_is_spoilt():
    rng = random.Random(1)
    spoilt = [make_demonstration(family, rng, 1.0) for _ in range(60) for family in training_families()]
    broken = [each for each in spoilt if isinstance(parse_tool_calls(each.reply)[0], MalformedAction)]
    assert 0.05 < len(broken) / len(spoilt) < 0.2
    for family in training_families():
        for seed in range(20):
            right = format_tool_call(FAMILIES[family](draw_choices(random.Random(seed), TaskSplit.TRAIN)).command)
            assert make_demonstration(family, random.Random(seed), 0.0).reply == right
            assert make_demonstration(family, random.Random(seed), 1.0).reply != right
    some = [(seed, make_demonstration("copy", random.Random(seed), 0.4)) for seed in range(500)]
    wrong = [each for seed, each in some if each.reply != make_demonstration("copy", random.Random(seed), 0.0).reply]
    assert 0.3 < len(wrong) / len(some) < 0.5


@pytest.mark.slow
def test_a_copy_string_has_loss_only_where_the_past_determines_the_next_token(encoder: DemonstrationEncoder):
    rng = random.Random(0)
    for _ in range(50):
        token_ids, mask = make_copy_string(encoder.alphabet(), rng)
        loss = int(mask.sum())
        assert 3 <= loss <= 25
        assert mask[-loss:].all()
        assert token_ids[-loss - 1 :].tolist() == token_ids[-2 * (loss + 1) : -loss - 1].tolist()
