"""The connection to a container's PID 1, which survives a restart of the Docker daemon.

Layers, from below: ``wire``, the frames' layout; ``init_command``, ``init_messages`` and ``init_requests``, which
``init/main.c`` mirrors; ``resend_buffer`` and ``attach``; ``resumable_stream``; ``connection``.  Requests wait for
PID 1's answers, and every waiter is woken when the connection ends.
"""
