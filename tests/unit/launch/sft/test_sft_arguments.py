"""If these fail, an option does something else than its key, or a run goes on as another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.config import ConfigError, load_recipe, load_sft
from launch.config.command_line import NEWEST_RUN
from launch.data.demo.model import build_demo_model
from launch.run_records.reproducibility import write_record
from launch.run_records.run_directory import RunDirectory
from launch.run_records.run_lookup import find_newest_run
from launch.run_records.stored_config import load_stored_config
from launch.sft.__main__ import COMMAND
from launch.sft.arguments import SftArguments, resumed_config
from launch.sft.preparation import prepare_sft
from protocol.cli.arguments import parse_arguments
from protocol.cli.output import JsonOutput
from protocol.errors import UserError
from protocol.run_directory.layout import SUMMARY_FILE, RunDirectoryError


def parse_sft_arguments(words: list[str]) -> SftArguments:
    return parse_arguments(SftArguments, words, "longshore sft")


def test_options_override_the_defaults_and_set_overrides_options() -> None:
    line = (
        "--model /m --data a.jsonl runs/x --data b.json --eval-data c.jsonl --output out --min-score 0.5 --epochs 3 "
        "--reward-weighted --overlong drop --batch-size 4 --lr 1e-4 --seed 7 --set sft.epochs=5"
    )
    config = parse_sft_arguments(line.split()).config()
    assert config.sft.data == (Path("a.jsonl"), Path("runs/x"), Path("b.json"))
    assert (config.sft.model, config.sft.output, config.sft.eval_data) == (Path("/m"), Path("out"), (Path("c.jsonl"),))
    assert (config.sft.min_score, config.sft.reward_weighted, config.sft.overlong) == (0.5, True, "drop")
    assert (config.sft.epochs, config.sft.batch_size, config.learner.lr, config.run.seed) == (5, 4, 1e-4, 7)
    assert not parse_sft_arguments(["--model", "/m"]).config().sft.reward_weighted


def test_a_dry_run_refuses_data_that_cannot_be_trained(tmp_path: Path) -> None:
    """Else it is noticed only where the model is."""
    data = tmp_path / "data.jsonl"
    data.write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]}\n')
    for option in ("--data", "--eval-data"):
        arguments = parse_sft_arguments(["--dry-run", option, str(data)])
        with pytest.raises(UserError, match=r"data\.jsonl:1: message 2: .*neither text nor calls"):
            COMMAND.run(arguments, JsonOutput(enabled=False))


def test_a_recipe_can_set_what_options_set(tmp_path: Path) -> None:
    recipe = tmp_path / "warm.toml"
    recipe.write_text('[sft]\nmodel = "/m"\ndata = ["a.jsonl"]\n[learner]\ntp = 2\nranks = 2\n')
    config = parse_sft_arguments([str(recipe), "--epochs", "2"]).config()
    assert (config.sft.model, config.sft.data, config.learner.tp, config.sft.epochs) == (
        *(Path("/m"), (Path("a.jsonl"),)),
        *(2, 2),
    )
    assert config.run.name == "warm"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("learner.eps_low=0.1", r"unknown key 'learner\.eps_low'.*longshore sft --dry-run"),
        ("sft.epoch=2", r"did you mean 'sft\.epochs'"),
        ("sft.max_tokens=9000", r"set learner\.micro_batch_tokens = 9000, or raise learner\.cp"),
        ("sft.eval_every_steps=5", "give --eval-data"),
        ("lora.rank=-1", r"lora\.rank"),
        ("sft.epochs=0", r"sft\.epochs"),
        ("run.name=a b", "cannot begin the name of a run's folder"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_the_remedy(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_sft(None, [override])
    assert "\n" not in str(caught.value)


def test_a_schedule_that_never_reaches_its_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="never reaches"):
        load_sft(None, ["sft.schedule=constant", "learner.lr_end=0.1"])


def test_adapters_that_no_layer_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'q_proj'"):
        load_sft(None, ["lora.rank=4", 'lora.targets=["q_pro"]'])


def test_a_warm_start_trains_all_weights(tmp_path: Path) -> None:
    """Adapters of a warm start that is kept would be merged in the next run, and not in the first."""
    with pytest.raises(ConfigError, match=r"lora\.rank = 4 freezes the model's weights, and the warm start"):
        load_recipe("demo", ["lora.rank=4", f"model.path={tmp_path}", 'warm_start.data=["a.jsonl"]'])


def test_a_missing_or_empty_argument_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--model is missing"):
        prepare_sft(load_sft(None))
    with pytest.raises(UserError, match="--data is missing"):
        prepare_sft(load_sft(None, [f"sft.model={tmp_path}"]))
    with pytest.raises(UserError, match=r"has no config\.json"):
        prepare_sft(load_sft(None, [f"sft.model={tmp_path}", 'sft.data=["a.jsonl"]']))
    with pytest.raises(UserError, match="--model is empty"):
        parse_sft_arguments(["--model", ""])
    with pytest.raises(UserError, match="--data is empty"):
        parse_sft_arguments(["--data", ""])


def test_a_model_that_the_learner_cannot_load_is_refused_before_the_start(tmp_path: Path) -> None:
    build_demo_model(tmp_path, load_recipe("demo", ["model.layers=1", "model.heads=2"]).model, 0)
    overrides = [f"sft.model={tmp_path}", 'sft.data=["a.jsonl"]']
    with pytest.raises(UserError, match=r"learner\.tp = 3 does not divide the 2 key-value heads.* one of 1, 2$"):
        prepare_sft(load_sft(None, [*overrides, "learner.tp=3", "learner.ranks=3"]))
    with pytest.raises(UserError, match=r"learner\.pp = 2 does not divide the 1 layers.* one of 1$"):
        prepare_sft(load_sft(None, [*overrides, "learner.pp=2", "learner.ranks=2"]))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged or cut off"):
        prepare_sft(load_sft(None, overrides))
    wrong = json.loads((tmp_path / "config.json").read_text()) | {"layer_types": ["full_attention"] * 5}
    (tmp_path / "config.json").write_text(json.dumps(wrong))
    with pytest.raises(UserError, match=r"config\.json: transformers cannot read it .*`layer_types` \(5\)"):
        prepare_sft(load_sft(None, overrides))


def begun(runs: Path, run_id: str, *overrides: str) -> Path:
    config = load_sft(None, overrides)
    with RunDirectory.create(runs, "sft", run_id) as directory:
        write_record(directory, config)
    return directory.path


def test_a_run_can_be_resumed_on_another_layout_but_not_as_another_training(tmp_path: Path) -> None:
    path = begun(tmp_path, "mine", "learner.lr=0.5", "sft.epochs=2")
    config = resumed_config(path, ["learner.ranks=2", "checkpoint.every_steps=7"])
    assert (config.learner.ranks, config.learner.lr, config.sft.epochs) == (2, 0.5, 2)
    with pytest.raises(RunDirectoryError, match=r"started with another learner\.lr, sft\.epochs"):
        resumed_config(path, ["sft.epochs=3", "learner.lr=0.1"])
    (path / SUMMARY_FILE).write_text("{}")
    with pytest.raises(RunDirectoryError, match="has ended"):
        resumed_config(path, [])
    assert resumed_config(path, ["sft.output=elsewhere"]).sft.output == Path("elsewhere")


def test_adapters_can_be_written_separately_only_if_there_are_some() -> None:
    assert parse_sft_arguments(
        ["--model", "/m", "--adapters", "a", "--set", "lora.rank=4"]
    ).config().sft.adapters == Path("a")
    with pytest.raises(ConfigError, match=r"sft\.adapters has no adapters to write: set lora\.rank = 16"):
        parse_sft_arguments(["--model", "/m", "--adapters", "a"]).config()


def test_data_may_be_a_run_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/demo-1").mkdir(parents=True)
    config = parse_sft_arguments(["--data", "demo-1", "good.jsonl"]).config()
    assert config.sft.data == (Path("runs/demo-1"), Path("good.jsonl"))
    recipe = load_recipe("demo", ['warm_start.data=["demo-1"]', "evaluation.before_from=demo-1"])
    assert (*recipe.warm_start.data, recipe.evaluation.before_from) == (Path("runs/demo-1"),) * 2


def test_resume_finds_the_newest_supervised_training(tmp_path: Path) -> None:
    place = ["--set", f"run.dir={tmp_path}"]
    with pytest.raises(RunDirectoryError, match="no supervised training in"):
        parse_sft_arguments(["--resume", *place]).find_resumed_run()
    begun(tmp_path, "first", f"run.dir={tmp_path}")
    path = begun(tmp_path, "second", f"run.dir={tmp_path}")
    assert parse_sft_arguments(["--resume", *place]).resume == NEWEST_RUN
    assert parse_sft_arguments(["--resume", *place]).find_resumed_run()[0] == path
    assert parse_sft_arguments(["--resume", "first", *place]).find_resumed_run()[0] == tmp_path / "first"
    with pytest.raises(UserError, match="name two runs"):
        parse_sft_arguments(["--resume", "first", "--run-id", "second"])


def test_a_supervised_run_is_not_taken_for_a_run_of_longshore_cluster(tmp_path: Path) -> None:
    path = begun(tmp_path, "mine")
    with pytest.raises(RunDirectoryError, match=r"go on with longshore sft --resume mine"):
        load_stored_config(path)
    with pytest.raises(RunDirectoryError, match=r"`longshore sft --resume mine"):
        RunDirectory.create(tmp_path, "sft", "mine")
    with pytest.raises(RunDirectoryError, match="no run at all"):
        find_newest_run(tmp_path, "", None)
