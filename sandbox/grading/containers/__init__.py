"""The container in which a task's tests run.

``grading_container`` opens it by grading level; ``carried_files`` and ``transfer`` copy the agent's files there; the
other modules are single steps: kill processes, copy artifacts, repair devices, remove links.
"""
