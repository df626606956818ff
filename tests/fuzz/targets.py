"""All fuzz targets, by name."""

from __future__ import annotations

from tests.fuzz import codec_target, container_targets, conversation_targets, gateway_targets, task_targets
from tests.fuzz.fuzz_target import FuzzTarget

TARGETS: dict[str, FuzzTarget] = {
    target.name: target
    for module in (codec_target, gateway_targets, container_targets, task_targets, conversation_targets)
    for target in module.TARGETS
}
