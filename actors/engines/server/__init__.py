"""One SGLang server process: its start, supervision and end, and its HTTP client.

Layers, from below: ``process_reaper`` and ``cpu_patches`` (no project imports), ``reply_stream``, ``client``,
``process``, ``active_server``.  ``entrypoint`` is the program that runs in the server's process.  Nothing here knows of
queues, of how weights are loaded, or of Ray.
"""
