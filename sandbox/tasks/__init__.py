"""Tasks: what an agent is asked to do and how the result is graded, in every format in which tasks are written.

Layers, from the ground up: ``task`` is what every format becomes; ``file_tree``, ``yaml_text``, ``problems`` and
``field_encoding`` read and write its parts; ``container_files`` reads Dockerfiles and compose files, ``code_runner``
tests the program of a code task; ``dataset`` holds many tasks; ``formats`` has a module or package for each format,
``registry`` among them knows all; ``dataset_catalog`` and ``task_selection`` choose data sets and tasks by name.

A format is a pure pair of functions, read and write, over a tree of files or a row.  Fields that a format cannot hold
are stored beside it (``field_encoding``), so that every task survives every format.  A task that cannot be used is
reported with all of its problems, and the other tasks are loaded all the same.

Nothing here imports another package of the sandbox, except the command line (``__main__``).
"""
