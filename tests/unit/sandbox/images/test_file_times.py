"""If these fail, files of images are dated 1970, before the first year of a zip archive, or two tasks with the same
files have an image each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.http.task_codec import MAX_UNIX_S, TaskRefused, check_task_bounds, decode_task, encode_task
from sandbox.images.image_names import image_for
from sandbox.tasks.container_files.buildkit_syntax import to_classic
from sandbox.tasks.field_encoding import differing_fields
from sandbox.tasks.formats import terminal_bench
from sandbox.tasks.formats.folders import FolderFormat, load_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild

DATED_S = 1_000_000_000
HARBOR_FILES = {
    "task.toml": "",
    "instruction.md": "Do it.\n",
    "tests/test.sh": "true\n",
    "environment/data.txt": "hi\n",
}
TERMINAL_BENCH = {
    "task.yaml": "instruction: Do it.\n",
    "run-tests.sh": "true\n",
    "solution.sh": "true\n",
    "tests/test_outputs.py": "def test_a(): pass\n",
    "docker-compose.yaml": "services:\n  client: {image: 'debian:12', volumes: ['./data.txt:/data.txt']}\n",
    "data.txt": "hi\n",
}


def read_build(form: FolderFormat, folder: Path, files: dict[str, str]) -> ImageBuild:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        if path.endswith("data.txt"):
            os.utime(folder / path, (DATED_S, DATED_S))
    task = load_task_folder(form, folder).require_task()
    assert task.build is not None
    sent = decode_task(encode_task(task))
    assert sent == task
    assert sent.build is not None
    assert not sent.build.modified_s
    assert image_for(sent) == image_for(task)
    return to_classic(task.build, "amd64").build


@pytest.mark.parametrize(
    ("form", "files"),
    [
        (HARBOR, HARBOR_FILES | {"environment/Dockerfile": "FROM debian\nCOPY data.txt /\n"}),
        (HARBOR, HARBOR_FILES | {"environment/Dockerfile": "FROM debian\nCOPY --chmod=600 data.txt /\n"}),
        (HARBOR, HARBOR_FILES | {"task.toml": "[environment]\ndocker_image = 'debian:12'\n"}),
        (terminal_bench.FORMAT, TERMINAL_BENCH),
    ],
    ids=["copied", "copied-with-a-mode", "loose", "mounted"],
)
def test_files_of_an_image_have_the_time_that_they_have_on_disk(
    tmp_path: Path, form: FolderFormat, files: dict[str, str]
) -> None:
    build = read_build(form, tmp_path / "a", files)
    found = {build.modified_s.get(path) for path in build.files if path.endswith("data.txt")}
    assert found == {DATED_S}


def test_a_written_task_does_not_say_when_its_files_were_changed() -> None:
    build = ImageBuild({"Dockerfile": b"FROM a\n"}, modified_s={"Dockerfile": DATED_S})
    fields = differing_fields(Task("a", "", build=build), Task("a", ""))
    assert fields == {"build": {"files": {"Dockerfile": "FROM a\n"}}}


@pytest.mark.parametrize("times", [{"absent": DATED_S}, {"Dockerfile": MAX_UNIX_S + 1}])
def test_a_time_beyond_every_engine_or_of_no_file_is_refused_by_name(times: dict[str, int]) -> None:
    task = Task("a", "", build=ImageBuild({"Dockerfile": b"FROM a\n"}, modified_s=times))
    with pytest.raises(TaskRefused, match=r"build\.modified_s"):
        check_task_bounds(task)
