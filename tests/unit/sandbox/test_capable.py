"""A task runs without its services or its network, and its score means nothing, when this fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.capable import TaskBeyondPool, lacking, refuse
from sandbox.tasks.task import GradingLevel, ImageBuild, Network, NetworkMode, Service, Task

TASK = Task("t", "do it", image="there", grading=GradingLevel.COMMIT)


def test_one_container_is_given_at_every_level():
    for level in GradingLevel:
        refuse(replace(TASK, grading=level))
    assert not lacking(
        replace(TASK, build=ImageBuild({"Dockerfile": b"FROM x"}), network=Network(build=NetworkMode.FULL))
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"services": (Service("db"), Service("web"))}, "services: db, web"),
        ({"network": Network(agent=NetworkMode.PROXY)}, "a network"),
        ({"network": Network(verify=NetworkMode.FULL)}, "a network"),
    ],
    ids=str,
)
def test_what_a_pool_does_not_give_is_refused_by_name(change, named):
    with pytest.raises(TaskBeyondPool, match=named):
        refuse(replace(TASK, **change))
