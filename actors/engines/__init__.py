"""Engines: SGLang servers that sample for the rollout workers and take each new weight version.

``interface`` is what others call.  ``engine`` implements it by parts that share one ``server_slot``: the
``supervisor`` starts, probes and replaces the server, ``weights`` loads versions into it, ``memory_offload`` gives its
memory to a colocated learner.  ``remote_engine`` is an engine in another process, as a worker's router sees it.
"""
