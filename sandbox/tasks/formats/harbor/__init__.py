"""Harbor directories: ``schema`` is ``task.toml``, ``reader`` and ``writer`` are pure, ``directory`` is the format."""
