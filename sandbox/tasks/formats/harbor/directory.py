"""The Harbor format: ``task.toml``, ``instruction.md``, ``environment/``, ``solution/solve.sh``, ``tests/test.sh``.

longshore adds two kinds of file, which other harnesses ignore: ``weights.json``, and ``foils/NAME.sh``
(:attr:`sandbox.tasks.task.Task.foils`).
The tests leave ``ctrf.json``, ``reward.json`` or ``reward.txt`` in ``/logs/verifier``.  If ``weights.json`` names
tests, all of them are expected.  Fields that Harbor lacks are in ``longshore.yaml``
(:mod:`sandbox.tasks.formats.folders`).
"""

from __future__ import annotations

from sandbox.tasks.formats.folders import FolderFormat
from sandbox.tasks.formats.harbor.reader import read_task
from sandbox.tasks.formats.harbor.writer import write_task

HARBOR = FolderFormat("task.toml", read_task, write_task)
