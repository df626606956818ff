"""One folder of mini runs for the whole test session, so that their warm start is trained once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.host_record import SandboxHost
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.tasks.coin_tasks import write_coin_tasks


@pytest.fixture(scope="session")
def mini_runs(docker_engine: SandboxHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniRuns]:
    folder = tmp_path_factory.mktemp("mini")
    tasks = write_coin_tasks(folder / "tasks")
    (tasks / "malformed").mkdir()
    runs = MiniRuns(folder, tasks)
    yield runs
    runs.clean_up()


@pytest.fixture(autouse=True)
def end_of_own_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends what a failed test left running, which would slow down all later ones."""
    if "mini_runs" not in request.fixturenames:
        yield
        return
    runs: MiniRuns = request.getfixturevalue("mini_runs")
    before = runs.started
    yield
    runs.clean_up(before)
