"""The commands of the pages for a newcomer's own tasks and agent that need something of the reader's, as they stand:
only the placeholders are replaced, by a model that says little, a scripted model at a URL, tasks, bugs, a registry,
an image and a package that the test makes. If these fail, a page promises what its command does not do.

Runs would take hours: they are stopped by Ctrl-C once an episode has ended."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.cli.exit_codes import EXIT_INTERRUPTED
from sandbox.docker import daemon
from sandbox.host_record import SandboxHost
from sandbox.tasks.formats.registry import load_tasks
from tests.support.actors.published_harnesses import install_or_skip
from tests.support.documented_commands import ROOT, CommandMark, DocumentedCommand, read_commands
from tests.support.fakes.fake_bucket import FakeBucket
from tests.support.fakes.fake_chat import scripted_replies, serve_fake_chat
from tests.support.fakes.fake_registry import FakeRegistry
from tests.support.plugin_package import write_plugin_package
from tests.support.runs.terse_model import build_terse_model
from tests.support.sandbox.browsers import install_browser_or_skip
from tests.support.sandbox.python_image import pip_image
from tests.support.tasks.bug_rows import image_bug_row
from tests.support.typed_commands import ReaderRun, lay_out, start_typing, type_in

pytestmark = [pytest.mark.docker, pytest.mark.slow]

DOCS = ROOT / "docs"
PAGES = ("your-tasks.md", "your-agent.md", "formats.md", "gateway.md")
COMMANDS = {
    "evaluate": ("your-tasks.md", "evaluate --model /path/to/folder"),
    "train": ("your-tasks.md", "cluster instruct --model /path/to/folder"),
    "save": ("your-tasks.md", "images save ./my-tasks"),
    "load": ("your-tasks.md", "images load"),
    "fetch": ("your-tasks.md", "data get https://BUCKET/bugs"),
    "prefetch": ("your-tasks.md", "images prefetch bugs.jsonl"),
    "web": ("your-tasks.md", "evaluate --oracle --tasks longshore-web"),
    "url": ("your-agent.md", "evaluate --model http://127.0.0.1:30000/v1"),
    "object": ("your-agent.md", "cluster demo --model /path/to/folder --set agent.kind=prompt_lines"),
    "image": ("your-agent.md", "images build ./my-agent"),
    "program": ("your-agent.md", "--set agent.harness=python3 /opt/agent.py"),
    "gateway": ("gateway.md", "--set agent.harness=python3 /opt/agent.py"),
    "install": ("your-agent.md", "harness install claude-code"),
    "evaluate harness": ("your-agent.md", "evaluate --model /path/to/folder --tasks ./tasks --agent claude-code"),
    "train harness": ("your-agent.md", "cluster instruct --model /path/to/folder --agent claude-code"),
}
"""The commands of these pages with the mark ``[yours]``."""
PYTHON = "python:3.12-slim"
"""What the image of the page's agent is made from."""
FEW = ("--set", "rollout.episodes_per_worker=2")
"""Fewer agents at once, for machines that other tests share: the time to start a program is the agent's."""
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
    """A reader's folder: what the two pages show, and the same tasks under another name with time for eight programs
    that start at once on two shared cores."""
    del docker_engine
    for page in ("your-tasks.md", "your-agent.md"):
        lay_out(DOCS / page, tmp_path)
    shutil.copytree(tmp_path / "my-tasks", tmp_path / "tasks")
    settings = tmp_path / "tasks/count-lines/task.toml"
    settings.write_text(settings.read_text().replace("timeout_sec = 60", "timeout_sec = 600"))
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
    assert sorted(shown) == sorted(str(find(name)) for name in COMMANDS)


def read_summary(folder: Path) -> dict[str, Any]:
    (summary,) = (folder / "evaluations").glob("*/summary.json")
    return json.loads(summary.read_text())


def test_the_oracle_solves_all_tasks_of_the_web(folder: Path, docker_engine: SandboxHost) -> None:
    install_browser_or_skip(docker_engine)
    type_in(find("web"), folder, added=("--concurrency", "2"))  # browsers on two shared cores
    summary = read_summary(folder)
    assert (summary["graded"], summary["pass_ratio"]) == (18, 1.0)


@pytest.mark.sglang
def test_a_model_in_a_folder_is_evaluated_on_the_tasks(folder: Path, model: Path) -> None:
    done = type_in(find("evaluate"), folder, {MODEL_FOLDER: str(model)})
    summary = read_summary(folder)
    assert (summary["graded"], summary["pass_count"]) == (8, 0), done.stderr
    assert "count-lines" in (next((folder / "evaluations").glob("*/results.csv"))).read_text()


COUNT = "wc -l < /app/input.txt > /app/answer.txt"


async def test_a_model_at_a_url_is_evaluated_with_an_agent_of_bash(folder: Path) -> None:
    end = "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"
    async with serve_fake_chat(scripted_replies(f"```bash\n{COUNT}\n```", end)) as chat:
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


AS_AN_AGENT = {"completed", "turn_limit", "context_limit", "malformed_limit"}


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
        assert_stopped(run, AS_AN_AGENT)


@pytest.mark.ray
@pytest.mark.sglang
def test_a_run_trains_an_agent_of_an_installed_package(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin_package(folder / "site")
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"))
    with start_typing(find("object"), folder, {MODEL_FOLDER: str(model)}) as run:
        assert_stopped(run, AS_AN_AGENT)


def allow_package_index() -> list[str]:
    """What lets a build reach pip's index on machines where its address is not public. In a process of its own: an
    import of pip here would warn of its distutils."""
    script = "from pip._internal.models.index import PyPI; print(PyPI.netloc, PyPI.file_storage_domain)"
    hosts = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    return [word for host in hosts for word in ("--allow-host", host)]


@pytest.fixture
def agent_image(folder: Path, docker_engine: SandboxHost) -> str:
    """The image of the page's agent. Debian's Python stands in for the official image, which needs a registry."""
    dockerfile = folder / "my-agent/Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(PYTHON, pip_image(docker_engine)))
    built = type_in(find("image"), folder, added=allow_package_index())
    (image,) = re.findall(r"^(longshore/build:\S+)  my-agent$", built.stdout, re.MULTILINE)
    return image


async def test_the_program_of_the_page_solves_a_task(folder: Path, agent_image: str) -> None:
    """Evaluated as the page evaluates another agent."""
    image = ("--set", f"sandbox.image={agent_image}")
    async with serve_fake_chat(scripted_replies("I count.\n```sh\n" + COUNT + "\n```", "Done.")) as chat:
        settings = {MODEL_URL: chat.url, "agent.kind=bash": "agent.harness=python3 /opt/agent.py"}
        await asyncio.to_thread(type_in, find("url"), folder, settings, added=image)
    summary = read_summary(folder)
    assert (summary["graded"], summary["pass_ratio"]) == (8, 1.0)


@pytest.mark.ray
@pytest.mark.sglang
def test_a_run_trains_a_program_in_an_image_of_its_own(folder: Path, model: Path, agent_image: str) -> None:
    assert find("gateway").words == find("program").words
    with start_typing(find("program"), folder, {MODEL_FOLDER: str(model), "IMAGE": agent_image}, added=FEW) as run:
        assert_stopped(run, {"completed"})


@pytest.mark.sglang
def test_a_published_harness_is_evaluated_on_the_tasks(folder: Path, model: Path, docker_engine: SandboxHost) -> None:
    install_or_skip(docker_engine, "claude-code")
    installed = type_in(find("install"), folder)
    assert re.fullmatch(r"claude-code: /\S+\n", installed.stdout)
    done = type_in(find("evaluate harness"), folder, {MODEL_FOLDER: str(model)})
    summary = read_summary(folder)
    assert (summary["graded"], summary["pass_count"]) == (8, 0), done.stderr


@pytest.mark.ray
@pytest.mark.sglang
def test_a_run_trains_a_published_harness(folder: Path, model: Path, docker_engine: SandboxHost) -> None:
    install_or_skip(docker_engine, "claude-code")
    with start_typing(find("train harness"), folder, {MODEL_FOLDER: str(model)}, added=FEW) as run:
        assert_stopped(run, {"completed"})
