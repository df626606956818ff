"""The networks of a sandbox in each phase of its task, and the task's services."""
