"""Tasks: what an agent is asked to do and how the result is judged, one file per format.

:mod:`~sandbox.tasks.task` is what every format becomes; :mod:`~sandbox.tasks.terminal_bench` reads and writes
Terminal-Bench directories; :mod:`~sandbox.tasks.generated` makes small tasks by seed.
"""

from sandbox.tasks.task import BASE_IMAGE, Task, TaskError
from sandbox.tasks.terminal_bench import Dataset, load_dataset, load_task, write_task

__all__ = ["BASE_IMAGE", "Dataset", "Task", "TaskError", "load_dataset", "load_task", "write_task"]
