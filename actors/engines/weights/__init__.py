"""Loading of weight versions into a running server.

The ``updater`` stages a version while the server decodes, then swaps it in during a pause, and confirms the server's
weights by version and checksum.  There are four loaders: the server reads files, reads tensors in shared memory, takes
part in a broadcast, or loads adapters without a pause.  Layers, from below: ``weight_files``, ``adapter_files`` and
``tensor_buckets`` (the content of a folder), the loaders, the updater.
"""
