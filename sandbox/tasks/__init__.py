"""Tasks: what an agent is asked to do and how the result is judged, one file per format.

:mod:`~sandbox.tasks.task` is what every format becomes.  A format is a pure pair of rules, read and write, over a tree
of files (:mod:`~sandbox.tasks.folders`) or a row (:mod:`~sandbox.tasks.rows`); :mod:`~sandbox.tasks.formats` knows all.
Whatever a format cannot say is kept beside it (:mod:`~sandbox.tasks.encoding`), so that any task survives any format.
A task that cannot be used is named with every problem it has, and the others are loaded all the same.
"""

from sandbox.tasks.dataset import Dataset
from sandbox.tasks.task import BASE_IMAGE, Task, TaskError
from sandbox.tasks.terminal_bench import load_dataset, load_task, write_task

__all__ = ["BASE_IMAGE", "Dataset", "Task", "TaskError", "load_dataset", "load_task", "write_task"]
