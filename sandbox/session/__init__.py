"""The life of one sandbox: PID 1's protocol and the resumable connection to it, shells, terminals and files, and the
session that owns them.

Layers, from below: wire; init_messages, init_requests, keys and terminal_emulator; init_command, resend_buffer and
attach; resumable_stream; connection; shell, terminal and child_process; files, slots, named_session and task_setup;
sandbox_session; snapshot. Requests wait for PID 1's answers; nothing waits for the agent without a deadline.
"""
