"""Tasks: an agent's instruction and how its result is graded, in every format in which tasks are written.

Layers, from below: ``task`` is the model that every format is converted to; ``file_tree``, ``yaml_text``, ``problems``
and ``field_encoding`` read and write its parts; ``live_evidence`` chooses its level; ``container_files`` reads
Dockerfiles and compose files, ``code_runner`` tests the program of a code task; ``dataset`` holds many tasks;
``formats`` has a module or package for each format, which its ``registry`` knows by name; ``dataset_catalog`` and
``task_selection`` choose data sets and tasks.

A format is a pair of pure functions, read and write, over a tree of files or a row. Fields that a format cannot hold
are stored in addition (``field_encoding``), so that every task survives every format. A task that cannot be used is
reported with all of its problems, and the other tasks are still loaded.

Nothing here imports another package of the sandbox, except the command line (``__main__``).
"""
