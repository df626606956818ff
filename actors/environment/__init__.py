"""The environment service: a whole episode on the machine that has its sandbox.

A run's worker says which task, which agent and where the policy answers; the service runs the agent's loop beside its
sandboxes, asks the policy by that address (the worker's gateway, which keeps each sampled token), grades, and tells
what came of it.  Only messages cross the network between: no command of an agent's waits for it.

- An episode belongs to the service and is named by its client: asked for again, it is not begun again.
- It lives as long as its client asks for it.  One whose client is gone, or that is over its deadline, ends with its
  sandbox; so does everything where the service is stopped, and by its own deadline each sandbox of one that is killed.
- What goes wrong is told by a code, and is at the client what it would have been there; an episode that its service no
  longer knows is infrastructure's loss, and is never continued.

``wire.py`` what is said; ``play.py`` one episode; ``service.py`` those of one machine, without HTTP; ``app.py`` its
endpoints; ``client.py`` the worker's side.  ``python -m launch.environment`` starts one.
"""
