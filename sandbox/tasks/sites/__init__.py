"""Three small websites for tasks of the web: a shop, a wiki, and the dashboard of a machine park with an API.

Each is a program of the standard library that runs in a service container of its task, on the toolchain's Python
(:mod:`~sandbox.tasks.sites.site_services` makes the service; all other modules are copied into it).  Its data is a
function of a seed and lives in SQLite, in memory.  An agent reaches it only through its pages.  The task's tests ask
for its state by SQL with a secret that only they and the service have.

Layers: ``serve`` starts a site; ``shop``, ``wiki`` and ``dashboard`` are the sites, made from ``shop_data``,
``wiki_data`` and ``dashboard_data``; ``web_app`` has routes, sessions and the state's query; ``html_elements`` writes
pages.
"""
