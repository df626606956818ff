"""Task images: built, pulled or imported once for all sessions, and kept within a quota.

:class:`~sandbox.images.store.ImageStore` is the entry point: ``async with store.reserve(task) as image``. An image that
any process of this machine has reserved, or that a container uses, is never evicted; images of other origin on the
engine are never touched. Layers, from below: ``image_names``, ``quota``, ``ledger`` and ``build_context``;
``engine_calls``; ``build_network`` and ``eviction``; ``store``.
"""
