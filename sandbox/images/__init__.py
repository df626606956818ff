"""Images: built, pulled or imported once however many sessions ask, and kept within a quota.

:class:`~sandbox.images.store.ImageStore` is the door: ``async with store.reserved(task) as image``.  What is reserved,
by any process of this machine, or used by a container is never evicted; what somebody else brought to the engine is
never touched.
"""
