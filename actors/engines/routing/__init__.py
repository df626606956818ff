"""Routing of requests to servers.

A worker's ``router`` chooses an engine by the rules of its ``load_balancer``.  The engine's ``request_queue`` holds the
request until its server has room and dispatches it under the right prefix-cache key.  ``load_balancer``,
``prefix_cache`` and ``inflight_request`` are pure; router and request queue wire them and do not know each other.
"""
