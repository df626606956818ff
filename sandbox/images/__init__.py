"""Task images: built, pulled or imported once however many sessions need them, and kept within a quota.

:class:`~sandbox.images.store.ImageStore` is the door: ``async with store.reserve(task) as image``.  An image that any
process of this machine has reserved, or that a container uses, is never evicted; images that others brought to the
engine are never touched.  Layers: ``image_names``, ``quota``, ``ledger`` and ``build_context`` are the ground,
``engine_calls`` and ``build_network`` above them, then ``store``.
"""
