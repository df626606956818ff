"""How a running server comes to serve another weight version.

The ``updater`` stages a version while the server decodes, then swaps it in during a pause, and confirms by version and
checksum what the server holds.  A loader is how the bits get into the server: it reads ``files``, is given ``tensors``
in shared memory, takes part in a ``broadcast``, or loads ``adapters`` without a pause.  Layers, from below:
``weight_files``, ``adapter_files`` and ``tensor_buckets`` (what lies in a folder), the loaders, the updater.
"""
