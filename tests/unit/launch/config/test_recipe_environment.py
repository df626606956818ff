"""If these fail, a variable that OpenClaw's user exports is ignored in silence, or sets what the page does not say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from launch.actor_group.specs.sandbox_providers import make_provider_spec
from launch.config import load_recipe
from launch.config.loader import flatten_tables, recipe_variables
from launch.config.recipe_environment import load_recipe_in
from protocol.settings import ConfigError
from tests.support.commands import call_command
from tests.support.runs.recipe_tables import OPENCLAW, REFERENCE

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "coming-from.md").read_text()
RECIPE = "openclaw_terminal"
TURNS = ("learner.advantage=turn",)
VALUES: dict[str, tuple[str, str | float | bool]] = {
    "MODEL_CKPT": ("/models/8b", "/models/8b"),
    "HF_CKPT": ("/models/8b", "/models/8b"),
    "REF_LOAD": ("/models/ref", "/models/ref"),
    "SAVE_CKPT": ("/save", "/save"),
    "ROLLOUT_PROMPT_DATA": ("/data/train.jsonl", "/data/train.jsonl"),
    "PRM_ENABLE": ("1", True),
    "PRM_MODEL_PATH": ("/models/prm", "/models/prm"),
    "PRM_SGLANG_URL": ("http://prm:30000", "http://prm:30000/v1"),
    "PRM_M": ("5", 5),
    "PRM_STEP_COEF": ("0.5", 0.5),
    "PRM_TEMPERATURE": ("1", 1.0),
    "PRM_MAX_NEW_TOKENS": ("512", 512),
    "PRM_GPUS_PER_ENGINE": ("2", 2),
}
"""Variable → an exported text, and the value that its key then has."""


def read_page_table() -> dict[str, str]:
    """Return variable → key, as the page's table has them."""
    table = PAGE.partition("| variable | key |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", table, re.MULTILINE)
    return {name: keys for names, keys in rows for name in re.findall(r"`([^`]+)`", names)}


def test_the_page_lists_what_the_recipe_reads() -> None:
    listed = {variable: key.strip("`") for variable, key in read_page_table().items()}
    assert listed == {**recipe_variables(RECIPE), "WORKER_URLS": "sandbox.urls"}
    assert VALUES.keys() == recipe_variables(RECIPE).keys()


@pytest.mark.parametrize("variable", VALUES)
def test_a_variable_sets_exactly_its_key_and_is_told(variable: str, tmp_path: Path) -> None:
    text, value = VALUES[variable]
    key = recipe_variables(RECIPE)[variable]
    needs = (*TURNS, "judge.model=/prm") if variable == "PRM_ENABLE" else TURNS
    found = load_recipe_in({variable: text}, RECIPE, needs)
    before, after = (
        flatten_tables(config.model_dump(mode="json")) for config in (load_recipe(RECIPE, needs), found.config)
    )
    assert {each: after[each] for each in after if after[each] != before[each]} == {key: value}
    assert found.remarks == (f"{key} = {text}, from the variable {variable}",)


def test_a_dry_run_shows_what_variables_set_and_their_names(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for variable, (text, _) in VALUES.items():
        monkeypatch.setenv(variable, text)
    done = call_command(capfd, "launch.cluster", RECIPE, "--dry-run", "--set", TURNS[0])
    printed = flatten_tables(tomllib.loads(done.stdout))
    keys = recipe_variables(RECIPE)
    assert {variable: printed[keys[variable]] for variable in VALUES} == {
        variable: value for variable, (_, value) in VALUES.items()
    }
    assert done.stderr.count("remark: ") == len(VALUES)
    assert "remark: HF_CKPT is not used: MODEL_CKPT sets model.path" in done.stderr


def test_options_win_over_variables_and_the_variable_is_told() -> None:
    found = load_recipe_in({"PRM_M": "5", "PRM_STEP_COEF": ""}, RECIPE, ["judge.votes=7"])
    assert (found.config.judge.votes, found.remarks) == (7, ("PRM_M is not used: an option sets judge.votes",))


def test_an_unknown_variable_of_the_same_kind_is_told_and_others_are_not() -> None:
    exported = {"PRM_GPUS_TOTAL": "8", "PRM_": "", "REF_OTHER": "x", "PATH": "/bin"}
    (remark,) = load_recipe_in(exported, RECIPE).remarks
    assert remark.startswith("PRM_GPUS_TOTAL sets nothing here: docs/coming-from.md")


def test_other_recipes_read_no_variable_of_openclaw() -> None:
    exported = {variable: text for variable, (text, _) in VALUES.items()}
    assert load_recipe_in(exported, "demo") == (load_recipe("demo"), ())


def test_a_value_that_its_key_does_not_take_is_refused_by_the_variables_name() -> None:
    with pytest.raises(ConfigError, match="PRM_M: must be a valid integer, not 'three'"):
        load_recipe_in({"PRM_M": "three"}, RECIPE)


def test_a_recipe_of_ones_own_may_read_variables_and_a_key_that_does_not_exist_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[environment]\nSTEPS = "run.steps"\n')
    assert load_recipe_in({"STEPS": "9"}, str(mine)).config.run.steps == 9
    assert load_recipe(str(mine)).run.steps != 9, "only commands that tell of variables read them"
    mine.write_text('[environment]\nSTEPS = "run.step"\n')
    with pytest.raises(ConfigError, match=r"\[environment\] STEPS = 'run\.step' is no key.*'run\.steps'"):
        load_recipe_in({}, str(mine))


def test_worker_urls_are_those_of_the_pool_servers_and_told() -> None:
    sandbox, exported = load_recipe(RECIPE).sandbox, {"WORKER_URLS": "http://a:18081,http://b:18081"}
    spec = make_provider_spec(sandbox, exported)
    assert spec is not None
    assert spec.urls == ("http://a:18081", "http://b:18081")
    told = "sandbox.urls = http://a:18081,http://b:18081, from the variable WORKER_URLS"
    assert load_recipe_in(exported, RECIPE).remarks == (told,)
    assert load_recipe_in(exported, RECIPE, ["sandbox.urls=['http://c:1']"]).remarks == ()
    assert load_recipe_in(exported, "demo").remarks == ()


def test_every_variable_that_the_document_exports_is_on_the_page() -> None:
    document = REFERENCE / OPENCLAW
    if not document.exists():
        pytest.skip("the document is not here")
    exported = set(re.findall(r"export ([A-Z_]+)=", document.read_text()))
    assert len(exported) > 12
    assert {name for name in exported if f"`{name}`" not in PAGE} == set()
