"""Task images: built, pulled or imported once for all sessions, and kept within a quota.

:class:`~sandbox.images.store.ImageStore` is the entry point: ``async with store.reserve(task) as image``. An image that
any process of this machine has reserved, or that a container uses, is never evicted; images of other origin on the
engine are never touched.
"""
