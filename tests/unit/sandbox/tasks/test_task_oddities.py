"""If these fail, one odd task costs its whole data set; it must be reported by folder or line, and the others
loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from protocol.errors import UserError
from sandbox.tasks import file_tree
from sandbox.tasks.__main__ import COMMAND
from sandbox.tasks.dataset_catalog import load_labelled_dataset
from sandbox.tasks.formats.liveweb import rows as liveweb_rows
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.formats.rows import encode_row
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.yaml_text import YamlError, parse_yaml
from sandbox.validation.task_warnings import find_task_warnings

TB = {
    "task.yaml": "instruction: Do it.\n",
    "Dockerfile": "FROM debian:12\nWORKDIR /srv\n",
    "run-tests.sh": "pytest $TEST_DIR/test_outputs.py -rA\n",
    "solution.sh": "true\n",
    "tests/test_outputs.py": "def test_a(): pass\n",
}
HARBOR = {
    "task.toml": 'version = "1.0"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /srv\n",
    "solution/solve.sh": "true\n",
    "tests/test.sh": "pytest /tests/test_outputs.py\n",
    "tests/test_outputs.py": "def test_a(): pass\n",
}
DEEP = "[" * 5000 + "]" * 5000
BOMB = "a0: &a0 [xxxxxxxxxx]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n},' * 9}]\n" for n in range(9))


def folder(place: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    return place


def client(line: str) -> dict[str, str]:
    return TB | {"docker-compose.yaml": f"services:\n  client:\n    build: .\n    {line}\n"}


ODD = {
    "open quote": (client("command: echo it's"), 'services.client.command: "echo it\'s" (No closing quotation)'),
    "endless list": (TB | {"task.yaml": "instruction: x\ntags: &a [*a]\n"}, "the alias *a contains itself"),
    "endless environment": (client("environment: &e [*e]"), "the alias *e contains itself"),
    "alias bomb": (TB | {"task.yaml": f"instruction: x\n{BOMB}"}, "its aliases stand for more than"),
    "huge memory": (client(f"mem_limit: '{'9' * 5000}'"), "is not a size"),
    "deep yaml": (TB | {"task.yaml": f"instruction: x\na: {DEEP}\n"}, "nested more than 100 deep"),
    "deep toml": (HARBOR | {"task.toml": f"a = {DEEP}\n"}, "task.toml is not readable TOML"),
    "huge number": (HARBOR | {"task.toml": f"a = {'9' * 5000}\n"}, "task.toml is not readable TOML"),
    "settings in another file": (HARBOR | {"longshore.yml": "grading: live\n"}, "longshore.yml is not read"),
    "key twice": (TB | {"task.yaml": "instruction: x\ninstruction: y\n"}, "the key 'instruction' is repeated"),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_malformed_folder_is_one_named_problem_and_the_others_are_loaded(tmp_path: Path, kind: str):
    files, what = ODD[kind]
    for name in ("a-good", "c-good"):
        folder(tmp_path / name, HARBOR if "task.toml" in files else TB)
    folder(tmp_path / "b-odd", files)
    found = load_tasks(tmp_path)
    assert [task.id for task in found.tasks] == ["a-good", "c-good"]
    (problem,) = found.problems
    assert problem.folder == tmp_path / "b-odd"
    assert what in str(problem)


def test_an_unforeseen_error_is_a_problem_of_that_row_only(tmp_path: Path):
    folder(tmp_path / "t", TB)
    rows = [{"task": {"task_name": "t", "task_path": path}} for path in ("x/" * 5000 + "x", "t")]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    deep = f'{{"task_id": 1, "extra": {{"problem_statement": "x", "deep": {"[" * 1010}{"]" * 1010}}}}}\n'
    (tmp_path / "s.jsonl").write_text(deep + '{"task_id": 2, "extra": {"problem_statement": "x"}}\n')
    for name, id_, what in (("p.jsonl", "t", "is no folder"), ("s.jsonl", "swe-synth-2", "cannot be read")):
        found = load_tasks(tmp_path / name)
        assert [task.id for task in found.tasks] == [id_]
        (problem,) = found.problems
        assert problem.folder == Path(f"{tmp_path / name}:1")
        assert problem.what.endswith(what)


def test_every_malformed_sample_is_named(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    path.write_text("".join(f'{{"task_id": {n}, "extra": {{}}}}\n' for n in range(3)))
    assert [problem.folder for problem in load_tasks(path).problems] == [Path(f"{path}:{n}") for n in (1, 2, 3)]


def test_keys_that_are_not_strings_are_converted_to_strings(tmp_path: Path):
    extra = "instruction: x\nextra: {1: a, b: c, 2020-01-01: d}\n"
    (task,) = load_tasks(folder(tmp_path / "t", TB | {"task.yaml": extra})).tasks
    assert json.loads(task.metadata["extra"]) == {"1": "a", "b": "c", "2020-01-01": "d"}


def test_yaml_aliases_and_merge_keys_are_resolved():
    assert parse_yaml("x: &c {a: 1, b: 2}\ny: {<<: *c, a: 3}\nz: *c\n") == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 3, "b": 2},
        "z": {"a": 1, "b": 2},
    }


def test_too_deeply_nested_yaml_is_an_error():
    with pytest.raises(YamlError, match="nested more than 100 deep"):
        parse_yaml("[" * 300_000)


@pytest.mark.parametrize("text", [f"a = {DEEP}", f"a = {'9' * 5000}", "a = 1"])
def test_an_unreadable_datasets_file_is_a_user_error(tmp_path: Path, text: str):
    (tmp_path / "datasets.toml").write_text(text)
    with pytest.raises(UserError, match=r"datasets\.toml"):
        load_labelled_dataset(tmp_path / "datasets.toml", "a")


def load_problems(place: Path) -> str:
    return "\n".join(map(str, load_tasks(place).problems))


def test_a_task_that_names_no_image_is_a_problem(tmp_path: Path):
    for name, files in {"tb": TB, "harbor": HARBOR}.items():
        bare = {path: text for path, text in files.items() if "Dockerfile" not in path}
        assert "there is no Dockerfile and no image is named" in load_problems(folder(tmp_path / name, bare))


def test_a_service_name_that_cannot_be_resolved_is_a_problem(tmp_path: Path):
    compose = "services:\n  client: {build: .}\n  my db: {image: x}\n"
    assert "the service name 'my db'" in load_problems(folder(tmp_path / "t", TB | {"docker-compose.yaml": compose}))


def test_a_shared_volume_that_cannot_be_made_or_has_no_other_user_is_a_problem(tmp_path: Path):
    shared = "{image: x, volumes: ['a b:/a']}"
    compose = f"services:\n  client: {shared}\n  db: {shared}\n"
    assert "the volume 'a b'" in load_problems(folder(tmp_path / "t", TB | {"docker-compose.yaml": compose}))
    alone = {"longshore.yaml": "volumes: [{volume: kept, target: /kept}]\n"}
    assert "volumes: 'kept' is a volume of no service" in load_problems(folder(tmp_path / "u", TB | alone))


def test_every_wrong_value_of_a_file_is_named(tmp_path: Path):
    weights = load_problems(folder(tmp_path / "w", HARBOR | {"weights.json": '{"a": -1, "b": -2}'}))
    assert "weights.json: a" in weights
    assert "weights.json: b" in weights
    large = load_problems(folder(tmp_path / "l", HARBOR | {"weights.json": '{"a": 1e308}'}))
    assert "the weight of test a is 1e+308" in large
    own = load_problems(folder(tmp_path / "o", TB | {"longshore.yaml": "network: {agent: open, verify: shut}\n"}))
    assert "longshore.yaml: network.agent" in own
    assert "longshore.yaml: network.verify" in own
    (tmp_path / "datasets.toml").write_text("[a]\nformat = 'x'\nsplit = 3\n")
    with pytest.raises(UserError, match=r"a\.path.*a\.format.*a\.split"):
        load_labelled_dataset(tmp_path / "datasets.toml", "a")


def test_missing_tests_and_weights_of_missing_tests_are_warned_about(tmp_path: Path):
    script = "# $TEST_DIR/old.py\npytest /tests/test_outputs.py ${TEST_DIR}/test_more.py /app/tests/own.py\n"
    (missing,) = load_tasks(folder(tmp_path / "m", TB | {"run-tests.sh": script})).tasks
    assert "its tests name test_more.py, which is not among them" in list(find_task_warnings(missing))
    weights = {"weights.json": '{"test_a": 0.5, "test_b": 0.5}'}
    (weighted,) = load_tasks(folder(tmp_path / "w", HARBOR | weights)).tasks
    assert "its weights name test_b, which is not a test of test_outputs.py" in list(find_task_warnings(weighted))


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("import rewardkit as rk\nrk.trajectory_turn_count(20)\n", True),
        ("open('/logs/agent/trajectory.json')\n", True),
        ("open('/app/trajectory.json')\n", False),
    ],
)
def test_tests_that_read_harbors_record_of_the_agent_are_warned_about(tmp_path: Path, text: str, reads: bool):
    (task,) = load_tasks(folder(tmp_path / "t", HARBOR | {"tests/c.py": text})).tasks
    assert any("/logs/agent/trajectory.json" in each for each in find_task_warnings(task)) is reads


def test_tests_that_ask_for_an_older_python_are_warned_about(tmp_path: Path):
    script = {"run-tests.sh": "uvx --python 3.12 pytest $TEST_DIR/test_outputs.py\nuvx -p 3.13 pytest\n"}
    (task,) = load_tasks(folder(tmp_path / "t", TB | script)).tasks
    assert "its tests ask for Python 3.12 and run on the toolchain's 3.13" in find_task_warnings(task)


@pytest.mark.parametrize(
    ("test", "script", "warned"),
    [
        ("import shutil\nshutil.unpack_archive('/app/x.tar', 'x')\n", "python3 /tests/test_outputs.py\n", True),
        ("import tarfile\ntarfile.open('/app/x.tar').extractall('x')\n", "python3 /tests/test_outputs.py\n", True),
        ("import shutil\nshutil.unpack_archive('x.tar', filter='data')\n", "python3 /tests/test_outputs.py\n", False),
        ("import zipfile\nzipfile.ZipFile('x.zip').extractall('x')\n", "python3 /tests/test_outputs.py\n", False),
        ("import shutil\nshutil.unpack_archive('/app/x.tar', 'x')\n", "pytest $TEST_DIR/test_outputs.py\n", False),
    ],
)
def test_tests_that_extract_archives_by_the_images_python_are_warned_about(
    tmp_path: Path, test: str, script: str, warned: bool
):
    files = {"run-tests.sh": script, "tests/test_outputs.py": test}
    (task,) = load_tasks(folder(tmp_path / "t", TB | files)).tasks
    assert any("filter='data'" in each for each in find_task_warnings(task)) is warned


@pytest.mark.parametrize("grading", [GradingLevel.SAME, GradingLevel.ARTIFACTS])
def test_tests_that_open_what_the_agent_names_or_run_its_sql_are_named(grading: GradingLevel):
    opens = {"test_outputs.py": b"open(open('/app/where').read())"}
    task = Task("a", "b", run_tests="uvx pytest /tests", tests=opens, grading=grading)
    script = Task("a", "b", run_tests="#!/bin/bash\nsqlite3 /app/a.db < /app/query.sql\n", grading=grading)
    for each, where in ((task, "in test_outputs.py:1"), (script, "in the test script:2")):
        (found,) = (warning for warning in find_task_warnings(each) if "by what the agent wrote" in warning)
        assert where in found


def test_a_script_with_crlf_and_tests_that_name_the_user_nobody_are_warned_about(tmp_path: Path):
    (windows,) = load_tasks(folder(tmp_path / "w", TB | {"run-tests.sh": "#!/bin/sh\r\npytest\r\n"})).tasks
    assert any("CR LF" in each for each in find_task_warnings(windows))
    for test in (
        "import subprocess\nsubprocess.run(['/app/x'], user='nobody')\n",
        "os.system('su nobody -c /app/x')\n",
    ):
        (named,) = load_tasks(folder(tmp_path / "n", TB | {"tests/test_outputs.py": test})).tasks
        assert any("name 65534" in each for each in find_task_warnings(named))
    (plain,) = load_tasks(folder(tmp_path / "p", TB)).tasks
    assert not any("65534" in each or "CR LF" in each for each in find_task_warnings(plain))


def test_a_filter_may_name_unusable_tasks_but_not_unknown_ones(tmp_path: Path):
    for name in ("good", "bad", "other"):
        folder(tmp_path / "s" / name, TB)
    (tmp_path / "s/bad/run-tests.sh").unlink()
    toml = tmp_path / "datasets.toml"
    toml.write_text("[a]\npath = 's'\nfilter = ['good', 'ba?', '!other']\n")
    assert [task.id for task in load_labelled_dataset(toml, "a").tasks] == ["good"]
    toml.write_text("[a]\npath = 's'\nfilter = ['good', 'god', '!othr']\n")
    with pytest.raises(UserError, match=r"a\.filter: no task matches 'god', '!othr'"):
        load_labelled_dataset(toml, "a")


def test_format_and_root_together_with_a_label_are_an_error(tmp_path: Path):
    folder(tmp_path / "s/t", TB)
    (tmp_path / "datasets.toml").write_text("[a]\npath = 's'\n")
    for option in (["--format", "harbor"], ["--root", str(tmp_path)]):
        with pytest.raises(UserError, match="remove --format and --root"):
            COMMAND.call(["list", "a", "--datasets", str(tmp_path / "datasets.toml"), *option])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${TEST:-${T_BENCH_TEST_DIR}}/a", "/tests/a"),
        ("${Y:+alt}${Y+alt}-${T_BENCH_TEST_DIR:+known}", "-known"),
        ("${T_BENCH_TEST_DIR:?need}", "/tests"),
        ("${T_BENCH_TEST_DIR:-${NOT_LOOKED_AT}}", "/tests"),
        ("${X-a}}$$x ${X:-$${b", None),
        ("${X:-a:b?c}}", "a:b?c}"),
        ("$$X", "$X"),
    ],
)
def test_variables_are_substituted_as_by_compose(tmp_path: Path, text: str, value: str | None):
    place = folder(tmp_path / "t", client(f"environment: {{A: {json.dumps(text)}}}"))
    if value is None:
        assert "write $$ for a dollar sign" in load_problems(place)
        return
    (task,) = load_tasks(place).tasks
    assert task.env == {"A": value}


def test_an_unknown_required_variable_is_reported_with_its_message(tmp_path: Path):
    assert "variable X is unknown: set it" in load_problems(
        folder(tmp_path / "a", client("environment: ['A=${X:?set it}']"))
    )
    assert "variable W is unknown" in load_problems(folder(tmp_path / "b", client("environment: ['A=${Z:-${W}}']")))


@pytest.mark.parametrize("line", ["mem_limit: 0", "mem_limit: 0g", "cpus: 0", "pids_limit: 0"])
def test_a_zero_limit_is_a_problem(tmp_path: Path, line: str):
    assert f"services.client: {line.partition(':')[0]}" in load_problems(folder(tmp_path / "t", client(line)))


@pytest.mark.parametrize("memory", ["2048", '"2048"', '"0G"'])
def test_harbor_sizes_need_a_unit_and_a_positive_value(tmp_path: Path, memory: str):
    files = HARBOR | {"task.toml": f"[environment]\nmemory = {memory}\n"}
    assert "task.toml: environment.memory" in load_problems(folder(tmp_path / "t", files))


def test_harbors_limit_variables_have_the_tasks_values(tmp_path: Path):
    limits = "deploy: {resources: {limits: {cpus: '${CPUS}', memory: '${MEMORY}'}}}"
    compose = f"services:\n  main:\n    build: '${{CONTEXT_DIR}}'\n    {limits}\n"
    files = HARBOR | {
        "environment/docker-compose.yaml": compose,
        "task.toml": "[environment]\ncpus = 2\nmemory = '3G'\n",
    }
    (task,) = load_tasks(folder(tmp_path / "t", files)).tasks
    assert (task.cpus, task.memory_mb) == (2.0, 3072)


def test_a_byte_order_mark_is_ignored(tmp_path: Path):
    for name, files in {"tb": TB, "harbor": HARBOR | {"weights.json": '{"test_a": 1}'}}.items():
        marked = {path: f"\ufeff{text}" for path, text in files.items()}
        folder(tmp_path / "plain" / name / "t", files)
        folder(tmp_path / "marked" / name / "t", {path: marked[path] for path in files if "tests/test_o" not in path})
        folder(tmp_path / "marked" / name / "t", {"tests/test_outputs.py": TB["tests/test_outputs.py"]})
        (plain,) = load_tasks(tmp_path / "plain" / name).tasks
        (task,) = load_tasks(tmp_path / "marked" / name).tasks
        assert task == plain
    (tmp_path / "g.jsonl").write_text('\ufeff{"family": "sort", "seed": 1, "split": "train"}\n')
    assert [task.id for task in load_tasks(tmp_path / "g.jsonl").tasks] == ["sort-train-00000001"]


def test_a_row_path_may_have_any_form_inside_the_folder(tmp_path: Path):
    folder(tmp_path / "tb/t", TB)
    paths = ["./tb/t", "tb/t/", "tb//t", "tb/../../t", "."]
    rows = [{"task": {"task_name": f"t{n}", "task_path": path}} for n, path in enumerate(paths)]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = load_tasks(tmp_path / "p.jsonl")
    assert [task.id for task in found.tasks] == ["t0", "t1", "t2"]
    assert ["is not a path below" in str(problem) for problem in found.problems] == [True, True]


def test_a_code_row_may_lack_extra_info_and_have_additional_keys(tmp_path: Path):
    row = {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": ["assert f(1) == 1"]}}
    (tmp_path / "c.jsonl").write_text(json.dumps(row | {"extra_info": None, "metadata": {"a": 1}}))
    (task,) = load_tasks(tmp_path / "c.jsonl").tasks
    assert task.expected_tests == ("case_0",)


def test_a_too_large_task_has_only_this_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_tree, "MAX_BYTES", 10)
    (problem,) = load_tasks(folder(tmp_path / "t", TB)).problems
    assert "is larger than" in str(problem)


def test_a_named_pipe_is_refused_without_reading_it(tmp_path: Path):
    os.mkfifo(folder(tmp_path / "t", TB) / "tests/pipe")
    assert "tests/pipe is not a regular file (pipes, devices" in load_problems(tmp_path / "t")


def test_a_folders_name_may_have_any_characters(tmp_path: Path):
    folder(tmp_path / "tasks" / "1. a task", TB)
    assert [task.id for task in load_tasks(tmp_path / "tasks").tasks] == ["1.-a-task-2db7fcbf"]


def test_a_folder_without_tasks_is_an_error(tmp_path: Path):
    folder(tmp_path / "a" / "b" / "c", TB)
    with pytest.raises(UserError, match=r"has no task: no task\.yaml or task\.toml"):
        load_tasks(tmp_path)


def test_the_only_service_of_a_terminal_bench_task_is_the_agents(tmp_path: Path):
    only = {
        "docker-compose.yaml": "services:\n  box: {image: 'debian:12', container_name: '${COMPOSE_PROJECT_NAME}'}\n"
    }
    found = load_tasks(folder(tmp_path / "t", TB | only))
    assert [(task.image, task.services) for task in found.tasks] == [("debian:12", ())]
    assert ["only service" in remark.what for remark in found.remarks] == [True]


def test_an_instruction_may_name_one_of_several_descriptions(tmp_path: Path):
    text = "instruction: base\ndescriptions: [{key: base, description: Do it.}, {key: more, description: Well.}]\n"
    (task,) = load_tasks(folder(tmp_path / "t", TB | {"task.yaml": text})).tasks
    assert task.instruction == "Do it.\n\nWell."


def test_an_image_of_another_machine_is_warned_of(tmp_path: Path) -> None:
    """Its build or its sandbox fails with an error that names no cause."""
    dockerfile = (
        "FROM --platform=linux/s390x debian:12 AS a\nFROM --platform=$BUILDPLATFORM debian:12\nCOPY --from=a /x /\n"
    )
    (loaded,) = load_tasks(folder(tmp_path / "t", TB | {"Dockerfile": dockerfile}).parent).tasks
    assert [each for each in find_task_warnings(loaded) if each.startswith("its Dockerfile is for s390x")]


@pytest.mark.parametrize("value", ["true", "True", "TRUE", "yes", "Yes", "on", "ON", "y", "'true'", "'yes'", "1"])
def test_tests_that_want_the_agents_shell_make_a_task_unusable_however_it_is_written(tmp_path: Path, value: str):
    (problem,) = load_tasks(folder(tmp_path / "t", _in_same_shell(value))).problems
    assert "run_tests_in_same_shell is not supported (tests in the agent's own shell run what" in str(problem)


@pytest.mark.parametrize("value", ["false", "No", "off", "n", "'false'", "0"])
def test_tests_that_want_a_shell_of_their_own_get_it_however_it_is_written(tmp_path: Path, value: str):
    assert load_tasks(folder(tmp_path / "t", _in_same_shell(value))).tasks


def _in_same_shell(value: str) -> dict[str, str]:
    return TB | {"task.yaml": f"instruction: x\nrun_tests_in_same_shell: {value}\n"}


def test_a_system_message_comes_before_the_users(tmp_path: Path):
    folder(tmp_path / "t", HARBOR)
    messages = [{"role": "system", "content": "Answer in French."}, {"role": "user", "content": "Do it."}]
    (tmp_path / "m.jsonl").write_text(json.dumps({"prompt": messages, "metadata": {"instance_id": "t"}}))
    found = load_tasks(tmp_path / "m.jsonl")
    assert ([task.instruction for task in found.tasks], found.remarks) == (["Answer in French.\n\nDo it."], ())


USER = [{"role": "user", "content": [{"type": "text", "text": "Do "}, {"type": "text", "text": "it so."}]}]
POINTER = {"task_name": 7, "task_path": "t"}


ROWS: list[tuple[dict[str, object], list[str]]] = [
    ({"prompt": USER, "metadata": {"instance_id": "7"}, "label": None}, []),
    ({"prompt": USER, "metadata": {"instance_id": 7}, "label": {"a": 1}}, []),
    (
        {"prompt": USER, "metadata": {"instance_id": "7", "max_turns": 3}, "tools": []},
        ["the row has keys that are not used: tools", "its metadata has keys that are not used: max_turns"],
    ),
    ({"task": POINTER | {"task_path": "7", "instruction": "Do it so."}}, []),
    (
        {"task": POINTER | {"task_path": "7", "instruction": "Do it so.", "max_turns": 3, "env": {}}, "id": 1},
        ["the row has keys that are not used: id", "its task has keys that are not used: env, max_turns"],
    ),
    (
        {"task": USER, "metadata": POINTER | {"task_path": "7", "tools": 1}, "longshore": {}},
        ["the row has keys that are not used: longshore", "its metadata has keys that are not used: tools"],
    ),
]


@pytest.mark.parametrize(("row", "unused"), ROWS)
def test_a_row_that_points_at_a_folder_is_read_whatever_its_form_and_names_its_unused_keys(
    tmp_path: Path, row: dict[str, object], unused: list[str]
):
    folder(tmp_path / "7", HARBOR)
    (tmp_path / "m.jsonl").write_text(json.dumps(row))
    found = load_tasks(tmp_path / "m.jsonl")
    assert [(task.id, task.instruction) for task in found.tasks] == [("7", "Do it so.")]
    assert [each.what for each in found.remarks] == unused


PAGE: dict[str, object] = {"task_id": 1, "start_url": "http://wiki:8000/", "question": "x", "answer": {"exact": "y"}}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (PAGE, "the row has a column that no agent is told of and no test uses: famly"),
        (
            {"prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": "1"}},
            "the row has keys that are not used: famly",
        ),
        (
            {"task_id": 1, "score": 0.0, "extra": {"problem_statement": "x", "conversation": [], "shell": "y"}},
            "the sample has keys that are not used: extra.shell, famly",
        ),
    ],
)
def test_a_row_that_is_whole_names_its_unused_keys_too(tmp_path: Path, row: dict[str, object], what: str):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"famly": "z"}))
    (remark,) = load_tasks(tmp_path / "rows.jsonl").remarks
    assert remark.what == what


def test_what_belongs_to_a_question_of_the_web_is_told_with_it_or_refused(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(PAGE | {"system": "Be brief."}))
    (task,) = load_tasks(path).tasks
    assert task.instruction.startswith("Be brief.\n\nx\n\n")
    path.write_text(json.dumps(encode_row(liveweb_rows.FORMAT, task)))
    assert load_tasks(path).tasks == (task,)
    path.write_text(json.dumps(PAGE | {"images": ["a.png"], "options": ["y"]}))
    assert [each.what for each in load_tasks(path).problems] == ["the row has options", "the row has images"]


def test_messages_that_contradict_the_metadatas_instruction_are_remarked_on(tmp_path: Path):
    folder(tmp_path / "t", HARBOR)
    row = {"task": USER, "metadata": POINTER | {"instruction": "Do it not."}}
    (tmp_path / "m.jsonl").write_text(json.dumps(row))
    (remark,) = load_tasks(tmp_path / "m.jsonl").remarks
    assert "another instruction than its messages" in remark.what


@pytest.mark.parametrize(
    ("extra", "name"),
    [({"task_id": "HumanEval/0"}, "HumanEval-0"), ({"task_id": None, "index": 3}, "m-3")],
)
def test_a_row_of_code_is_named_by_what_it_has(tmp_path: Path, extra: dict[str, object], name: str):
    row = {"prompt": "x", "reward_model": {"ground_truth": "1"}, "data_source": "m", "extra_info": extra}
    (tmp_path / "m.jsonl").write_text(json.dumps(row))
    assert [task.id for task in load_tasks(tmp_path / "m.jsonl").tasks] == [name]


def test_a_picture_in_a_prompt_is_a_problem(tmp_path: Path):
    folder(tmp_path / "7", HARBOR)
    prompt = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    (tmp_path / "m.jsonl").write_text(json.dumps({"prompt": prompt, "metadata": {"instance_id": "7"}}))
    assert load_tasks(tmp_path / "m.jsonl").problems
