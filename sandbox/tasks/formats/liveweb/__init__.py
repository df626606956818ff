"""Tasks of the web in the rows of LIVEWEB: a page to start from, a question, and what the answer or a site's state must
be.

``rows`` reads and writes them; ``web_checks`` is the test program that is copied into the sandbox.  ``generator`` makes
rows about the sites of ours (:mod:`sandbox.tasks.sites`) by family and seed, from ``shop_tasks``, ``wiki_tasks`` and
``dashboard_tasks``, which draw a ``draft``.
"""
