"""The commands of the pages for a newcomer's own tasks and agent that need something of the reader's, as they stand:
only the placeholders are replaced, by a model that says little, a scripted model at a URL, tasks, bugs, a registry and
a package that the test makes. If these fail, a page promises what its command does not do.

Runs would take hours: they are stopped by Ctrl-C once an episode has ended."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.cli.exit_codes import EXIT_INTERRUPTED
from sandbox.docker import daemon
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.registry import load_tasks
from tests.support.documented_commands import ROOT, CommandMark, DocumentedCommand, read_commands
from tests.support.fakes.fake_bucket import FakeBucket
from tests.support.fakes.fake_chat import Reply, Request, serve_fake_chat
from tests.support.fakes.fake_registry import FakeRegistry
from tests.support.runs.terse_model import build_terse_model
from tests.support.tasks.bug_rows import image_bug_row
from tests.support.typed_commands import ReaderRun, lay_out, start_typing, type_in

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

DOCS = ROOT / "docs"
PAGES = ("your-tasks.md", "your-agent.md", "formats.md")
COMMANDS = {
    "evaluate": ("your-tasks.md", "evaluate --model /path/to/folder"),
    "train": ("your-tasks.md", "cluster instruct --model /path/to/folder"),
    "save": ("your-tasks.md", "images save ./my-tasks"),
    "load": ("your-tasks.md", "images load"),
    "fetch": ("your-tasks.md", "data get https://BUCKET/bugs"),
    "prefetch": ("your-tasks.md", "images prefetch bugs.jsonl"),
    "url": ("your-agent.md", "evaluate --model http://127.0.0.1:30000/v1"),
}
"""The commands of these pages with the mark ``[yours]`` that are run."""
PARSED = ("claude-code", "longshore-web", "prompt_lines", "/opt/agent.py")
"""Words of commands that are only parsed. Claude Code is fetched from npm, and its prompt of 49,000 characters takes a
model on two cores minutes for each reply. The others take eighteen browsers, or a run of the demo each; smaller ones
are in test_evaluate.py, test_run_harness.py, test_liveweb_evaluation.py and tests/unit/test_plugins.py."""
MODEL_FOLDER, MODEL_URL = "/path/to/folder", "http://127.0.0.1:30000/v1"


def find(name: str) -> DocumentedCommand:
    page, words = COMMANDS[name]
    (found,) = [each for each in yours(page) if words in " ".join(each.words)]
    return found


def yours(page: str) -> list[DocumentedCommand]:
    return [each for each in read_commands(DOCS / page) if each.mark is CommandMark.YOURS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model with room for the prompt of any harness."""
    folder = tmp_path_factory.mktemp("model")
    build_terse_model(folder, positions=1 << 17)
    return folder


@pytest.fixture
def folder(tmp_path: Path, docker_engine: SandboxHost) -> Path:
    """A reader's folder: what the two pages show, and the same tasks under both names."""
    del docker_engine
    for page in ("your-tasks.md", "your-agent.md"):
        lay_out(DOCS / page, tmp_path)
    shutil.copytree(tmp_path / "my-tasks", tmp_path / "tasks")
    return tmp_path


@pytest.fixture
def home(docker_engine: SandboxHost, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables that give commands a cache folder, and so images, of their own, which are removed."""
    folder = tmp_path / "home"
    folder.mkdir()
    record = {"docker_url": docker_engine.docker_url, "base_image": docker_engine.base_image, "engine_owner": ""}
    (folder / "host.json").write_text(json.dumps({**record, "toolchain": str(docker_engine.toolchain)}))
    yield {"LONGSHORE_HOME": str(folder)}
    for name in {each for file in tmp_path.glob("*.images") for each in file.read_text().split()}:
        daemon.run_program(("docker", "--host", docker_engine.docker_url, "rmi", name), "remove a test's image")


def test_every_command_that_needs_something_of_the_readers_is_run_here() -> None:
    shown = [str(command) for page in PAGES for command in yours(page)]
    assert sorted(each for each in shown if not any(word in each for word in PARSED)) == sorted(
        str(find(name)) for name in COMMANDS
    )


def read_summary(folder: Path) -> dict[str, Any]:
    (summary,) = (folder / "evaluations").glob("*/summary.json")
    return json.loads(summary.read_text())


@pytest.mark.sglang
def test_a_model_in_a_folder_is_evaluated_on_the_tasks(folder: Path, model: Path) -> None:
    done = type_in(find("evaluate"), folder, {MODEL_FOLDER: str(model)})
    summary = read_summary(folder)
    assert (summary["graded"], summary["pass_count"]) == (8, 0), done.stderr
    assert "count-lines" in (next((folder / "evaluations").glob("*/results.csv"))).read_text()


def count_lines(request: Request) -> Reply:
    if any(message["role"] == "assistant" for message in request["messages"]):
        return "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"
    return "```bash\nwc -l < /app/input.txt > /app/answer.txt\n```"


async def test_a_model_at_a_url_is_evaluated_with_an_agent_of_bash(folder: Path) -> None:
    async with serve_fake_chat(count_lines) as chat:
        await asyncio.to_thread(type_in, find("url"), folder, {MODEL_URL: chat.url})
    summary = read_summary(folder)
    assert (summary["graded"], summary["pass_count"], summary["pass_ratio"]) == (8, 8, 1.0)


def test_images_of_tasks_are_saved_and_loaded(folder: Path, docker_engine: SandboxHost, home: dict[str, str]) -> None:
    task = folder / "my-tasks/count-lines"
    (task / "longshore.yaml").unlink()
    dockerfile = task / "environment/Dockerfile"
    dockerfile.write_text(
        dockerfile.read_text().replace("debian:bookworm-slim", docker_engine.base_image)
        + f"RUN echo {uuid.uuid4().hex} > /app/once\n"
    )
    saved = type_in(find("save"), folder, variables=home)
    image = re.findall(r"^(longshore/build:\S+)  count-lines$", saved.stdout, re.MULTILINE)[0]
    assert "1 built, 0 pulled, 0 existed, 0 failed" in saved.stdout
    remove = ("docker", "--host", docker_engine.docker_url, "rmi", image)
    daemon.run_program(remove, "remove the saved image")
    (folder / "made.images").write_text(image)
    loaded = type_in(find("load"), folder, variables=home)
    assert loaded.stdout.startswith(f"{image}  images.tar")
    assert daemon.has_image(docker_engine.docker_url, image)


async def test_bugs_of_a_bucket_are_fetched_and_their_images_pulled(folder: Path, home: dict[str, str]) -> None:
    docker = folder / "docker"
    docker.mkdir()
    async with FakeRegistry(uuid.uuid4().bytes).served() as registry, FakeBucket().served() as bucket:
        auth = base64.b64encode(b"ann:hers").decode()
        (docker / "config.json").write_text(json.dumps({"auths": {registry.address: {"auth": auth}}}))
        image = f"{registry.address}/bugs/calc:1"
        for number in range(100, 200):
            bucket.add(number, image_bug_row(image))
        fetched = await asyncio.to_thread(type_in, find("fetch"), folder, {"https://BUCKET/bugs": bucket.url})
        assert "100 bugs written to bugs.jsonl" in fetched.stdout
        assert len(load_tasks(folder / "bugs.jsonl").tasks) == 100
        again = await asyncio.to_thread(type_in, find("fetch"), folder, {"https://BUCKET/bugs": bucket.url})
        assert "0 bugs written to bugs.jsonl, 100 were there" in again.stdout
        variables = home | {"DOCKER_CONFIG": str(docker)}
        pulled = await asyncio.to_thread(type_in, find("prefetch"), folder, variables=variables)
        (folder / "pulled.images").write_text(image)
        assert "0 built, 1 pulled, 0 existed, 0 failed" in pulled.stdout


def assert_stopped(run: ReaderRun, statuses: set[str]) -> None:
    """Wait for an episode that ended as it should, press Ctrl-C, and check that the run ends in order."""
    event = run.wait_event("episode.finished", lambda each: each["status"] in statuses)
    assert event["turns"] > 0
    assert run.interrupt() == EXIT_INTERRUPTED, run.stderr
    assert "--resume" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.ray
@pytest.mark.sglang
def test_a_run_trains_on_the_tasks(folder: Path, model: Path) -> None:
    with start_typing(find("train"), folder, {MODEL_FOLDER: str(model)}) as run:
        assert_stopped(run, {"completed", "turn_limit", "context_limit", "malformed_limit"})
