"""The life of one sandbox: the connection to its PID 1, shells, terminals and files, and the session that owns them.

Layers, from below: init_connection, keys and terminal_emulator; shell, terminal and child_process; files, slots,
private_folders, named_session and task_setup; sandbox_session; snapshot. Nothing waits for the agent without a
deadline.
"""
