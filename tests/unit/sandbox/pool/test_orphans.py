"""If these fail, the disk fills with unused copies of sandboxes, or a copy that is in use is removed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import aiodocker
import pytest

from sandbox.docker import owner
from sandbox.docker.labels import EXPIRES_LABEL, OWNER_LABEL, POOL_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.pool.orphans import remove_abandoned

POOL = {POOL_LABEL: "p"}
DEAD = owner.owner_of_process(os.getpid()).rsplit("/", 1)[0] + "/0"
"""Owner of a dead process with this one's PID and another start time."""


class FakeImages:
    """The engine's images with their labels; ``refuse`` is the status with which a removal fails."""

    def __init__(self, there: Mapping[str, Mapping[str, str] | None], refuse: int = 0) -> None:
        self.there, self.refuse = dict(there), refuse

    async def list(self, *, all: bool, filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:  # noqa: A002  aiodocker calls it so
        wanted = [label.partition("=") for label in filters["label"]]
        return [
            {"Id": image, "Labels": labels}
            for image, labels in self.there.items()
            if all and all_in(wanted, labels or {})
        ]

    async def delete(self, image: str, *, force: bool, noprune: bool) -> None:
        assert force
        assert noprune, "a parent may have no name either"
        if self.refuse:
            raise aiodocker.DockerError(self.refuse, "no")
        del self.there[image]


def all_in(wanted: Sequence[tuple[str, str, str]], labels: Mapping[str, str]) -> bool:
    return all(key in labels and (not equals or labels[key] == value) for key, equals, value in wanted)


class FakeList:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def list(self, **_: object) -> object:
        return self.answer


class FakeImageDaemon:
    def __init__(self, images: FakeImages) -> None:
        self.docker, self.images = self, images
        self.networks, self.volumes = FakeList([]), FakeList({"Volumes": None})

    async def containers(self, labels: Mapping[str, str]) -> tuple[()]:
        return ()


async def swept(images: FakeImages) -> int:
    engine: Any = FakeImageDaemon(images)
    return await remove_abandoned(engine, POOL_LABEL, "p", lambda: 10_000.0)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.docker.retry.FIRST_PAUSE_S", 0.0)


async def test_only_images_of_dead_and_expired_owners_are_removed():
    alive = {**POOL, OWNER_LABEL: owner.owner_of_this_process()}
    images = FakeImages({
        "dead": {**POOL, OWNER_LABEL: DEAD},
        "expired": {**POOL, OWNER_LABEL: "elsewhere/1/2/3", EXPIRES_LABEL: "9000"},
        "alive": alive,
        "elsewhere": {**POOL, OWNER_LABEL: "elsewhere/1/2/3", EXPIRES_LABEL: "9900"},
        "another pool": {POOL_LABEL: "q", OWNER_LABEL: DEAD},
        "built by somebody": {"maintainer": "x"},
        "without labels": None,
    })  # fmt: skip
    assert await swept(images) == 2
    assert set(images.there) == {"alive", "elsewhere", "another pool", "built by somebody", "without labels"}


async def test_a_copy_that_a_container_still_uses_is_left_to_the_next_clean_up():
    images = FakeImages({"dead": {**POOL, OWNER_LABEL: DEAD}}, refuse=409)
    assert await swept(images) == 0
    images.refuse = 400
    with pytest.raises(DockerEngineError, match="remove image"):
        await swept(images)
    images.refuse = 404
    assert await swept(images) == 1
