"""The environment service: runs whole episodes on the machine that has their sandboxes.

A run's worker sends the task, the agent and the policy's address.  The service runs the agent's loop beside its
sandboxes, calls the policy at that address (the worker's gateway, which keeps each sampled token), grades, and returns
the outcome.  Only chat messages cross the network; an agent's commands run locally.

- An episode has a name chosen by its client; a repeated request does not begin it twice.
- It lives as long as its client polls it.  If the client is gone or the deadline has passed, it ends with its sandbox;
so
  do all episodes of a service that is stopped.  Sandboxes of a killed service end at their own deadlines.
- A failure is a code that becomes the same error at the client.  An episode that its service no longer knows is an
  infrastructure loss and is never continued.

The messages are at the bottom, then ``episode`` (one episode), ``service`` (a machine's episodes, without HTTP) and
``app`` (its endpoints); ``client`` is the worker's side.  ``longshore environment`` starts a service.
"""
