"""Tasks: what an agent is asked to do and how the result is judged, one file per format.

:mod:`~sandbox.tasks.task` is what every format becomes.  A format is a pure pair of rules, read and write, over a tree
of files (:mod:`~sandbox.tasks.formats.folders`) or a row (:mod:`~sandbox.tasks.formats.rows`); :mod:`~sandbox.tasks.formats.registry` knows all.
Whatever a format cannot say is kept beside it (:mod:`~sandbox.tasks.field_encoding`), so that any task survives any format.
A task that cannot be used is named with every problem it has, and the others are loaded all the same.
"""

from sandbox.tasks.dataset import Dataset
from sandbox.tasks.formats.terminal_bench import load_dataset, load_task, write_task
from sandbox.tasks.task import BASE_IMAGE, Task, TaskError

__all__ = ["BASE_IMAGE", "Dataset", "Task", "TaskError", "load_dataset", "load_task", "write_task"]
